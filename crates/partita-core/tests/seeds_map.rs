//! The map of the documents says where each of their statements is. What a test can check of it: the numbers have no gaps, every place
//! that is named exists, and it says what the row says that it says.
//!
//! How a row that is "here" is read:
//!
//! - `a/path`, `page.md` and `./test` are places: files or folders that exist; `a/file.rs::name` is a function in that file.
//! - `Name`, `Type::member`, `an_option` and other code are looked for, as whole words, in the places of the row.
//! - "Words in quotes" are looked for, too, without regard to case and line breaks. A row whose places are all pages has to quote one of them:
//!   that a page exists says nothing.
//! - Other words are for readers. Nothing is checked about them, but that "planned" is not among them: what is here is not planned.
//!
//! Other pages name files and functions, too, in text and in pictures: `file.rs::name` exists wherever a page says so. On the walks through
//! the code, so does every `folder/file.rs`.

use std::path::{Path, PathBuf};

/// What the map names, as it is found on disk.
trait Tree {
    /// The texts of a file, or of all files of a folder; nothing if there is no such place.
    fn texts(&self, path: &str) -> Option<Vec<String>>;
}

/// What is wrong with the map.
fn complaints(map: &str, tree: &impl Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut document, mut statement) = (0_u32, 0_u32);
    for (number, line) in map.lines().enumerate() {
        let Some(row) = line.strip_prefix("| D") else { continue };
        let mut complain = |what: String| complaints.push(format!("line {}: {what}", number + 1));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [id, _, place, state, ""] = cells[..] else {
            complain("not a row of four columns".into());
            continue;
        };
        let following = [(document, statement + 1), (document + 1, 1)];
        match following.into_iter().find(|(d, s)| id == format!("{d}.{s}")) {
            Some(found) => (document, statement) = found,
            None => complain(format!("D{id} does not follow D{document}.{statement}")),
        }
        match state.strip_prefix("planned: ") {
            Some(what) if !map.contains(&format!("*{what}*")) => {
                complain(format!("\"{what}\" is not among the planned pieces of work"));
            }
            Some(_) => {}
            None if state == "here" => {
                wrong_with(place, tree).into_iter().for_each(|what| complain(format!("D{id}: {what}")));
            }
            None => complain(format!("unknown state: {state}")),
        }
    }
    if document != 5 {
        complaints.push(format!("it ends with document {document}, there are five"));
    }
    complaints
}

/// What is wrong with the place of a statement that is here.
fn wrong_with(place: &str, tree: &impl Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let code: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
    let prose = place.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let (places, names): (Vec<&str>, Vec<&str>) = code.into_iter().partition(|code| is_place(code));
    if places.is_empty() {
        wrong.push("it is here, but where?".to_owned());
    }
    let mut texts = Vec::new();
    for place in &places {
        let (path, function) = place.split_once("::").unwrap_or((place, ""));
        match tree.texts(path) {
            None => wrong.push(format!("there is no {path}")),
            Some(found) => {
                let defines = |text: &String| text.contains(&format!("fn {function}("));
                if !function.is_empty() && !found.iter().any(defines) {
                    wrong.push(format!("there is no function {function} in {path}"));
                }
                texts.extend(found);
            }
        }
    }
    for name in names {
        let words: Vec<&str> = words(name).collect();
        let has_all = |text: &String| words.iter().all(|word| self::words(text).any(|found| found == *word));
        if !texts.iter().any(has_all) {
            wrong.push(format!("`{name}` is in none of its places"));
        }
    }
    let quotes: Vec<&str> = prose.split('"').skip(1).step_by(2).collect();
    for quote in &quotes {
        if !texts.iter().any(|text| plain(text).contains(&plain(quote))) {
            wrong.push(format!("none of its places says \"{quote}\""));
        }
    }
    if !places.is_empty() && quotes.is_empty() && places.iter().all(|place| place.ends_with(".md")) {
        wrong.push("its places are pages, and none is quoted".to_owned());
    }
    if words(&prose).any(|word| word == "planned") {
        wrong.push("it is here, and says that something is planned".to_owned());
    }
    wrong
}

/// What a page names and is not there: functions as `a/file.rs::name` and, if `files_too`, files as `a/file.rs`. Paths may begin at the root,
/// among the crates, in the engine's crate, or in its sources.
fn unknown_to(tree: &impl Tree, page: &str, files_too: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    let is_of_name = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    for name in page.split(|c| !is_of_name(c)).map(|name| name.trim_matches(['.', ':'])) {
        let (path, function) = name.split_once("::").unwrap_or((name, ""));
        let is_meant = path.ends_with(".rs") && (!function.is_empty() || files_too && path.contains('/'));
        if !is_meant {
            continue;
        }
        let bases = ["", "crates/", "crates/partita-core/", "crates/partita-core/src/"];
        let defines = |text: &String| {
            let begins = |end: &str| text.contains(&format!("fn {function}{end}"));
            function.is_empty() || begins("(") || begins("<")
        };
        let mut texts = bases.iter().filter_map(|base| tree.texts(&format!("{base}{path}"))).flatten();
        if !texts.any(|text| defines(&text)) {
            unknown.push(name.to_owned());
        }
    }
    unknown
}

fn is_place(code: &str) -> bool {
    let path = code.split("::").next().unwrap_or_default();
    (code.contains('/') || path.ends_with(".md")) && !code.contains(' ') || is_top_level(code)
}

/// Folders of the root, which have no slash.
fn is_top_level(code: &str) -> bool {
    ["benches", "sim", "fuzz", "interop", "examples"].contains(&code)
}

/// The words of code: letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Without case, emphasis and line breaks.
fn plain(text: &str) -> String {
    let text = text.to_lowercase().replace(['*', '`'], "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

// ---- the repository -------------------------------------------------------------------------------------------

struct Repository(PathBuf);

impl Tree for Repository {
    fn texts(&self, path: &str) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        let mut left = vec![self.0.join(path)];
        if !left[0].exists() {
            return None;
        }
        while let Some(path) = left.pop() {
            if path.is_dir() {
                let of_a_tool = ["target", "node_modules", "venv"].iter().any(|name| path.ends_with(name));
                if !of_a_tool {
                    let entries = std::fs::read_dir(&path).expect("a folder of the repository");
                    left.extend(entries.map(|entry| entry.expect("an entry").path()));
                }
            } else {
                // What is no text says nothing.
                texts.extend(std::fs::read_to_string(&path));
            }
        }
        Some(texts)
    }
}

#[test]
fn what_the_map_names_exists_and_says_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let map = std::fs::read_to_string(root.join("docs/seeds-map.md")).expect("the map is there");
    let complaints = complaints(&map, &Repository(root));
    assert!(complaints.is_empty(), "docs/seeds-map.md:\n{}", complaints.join("\n"));
}

#[test]
fn files_and_functions_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/walks"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder of pages");
        let entries = entries.map(|entry| entry.expect("an entry").path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let (mut unknown, mut walks) = (Vec::new(), 0);
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("a page");
        let is_walk = page.parent().is_some_and(|folder| folder.ends_with("walks"));
        walks += usize::from(is_walk);
        let found = unknown_to(&Repository(root.clone()), &text, is_walk);
        let name = page.strip_prefix(&root).unwrap_or(page).display();
        unknown.extend(found.into_iter().map(|what| format!("{name}: there is no {what}")));
    }
    assert!(walks >= 2, "the walks through the code are gone");
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}

// ---- the check itself -----------------------------------------------------------------------------------------

struct Planted;

impl Tree for Planted {
    fn texts(&self, path: &str) -> Option<Vec<String>> {
        let text = match path {
            "src/a.rs" => "pub struct Lease;\nimpl Lease { fn named() {} }\n",
            "docs/page.md" => "A **page** that says\nit well.\n",
            _ => return None,
        };
        Some(vec![text.to_owned()])
    }
}

#[test]
fn rows_that_are_not_true_are_told_from_rows_that_are() {
    let good = "Planned: *hub*.\n| D1.1 | s | `src/a.rs` | here |\n| D1.2 | s | `src/a.rs::named` (`Lease::named`) | here |\n\
                | D2.1 | s | `docs/page.md` (\"says it well\") | here |\n| D3.1 | s | `no/such` | planned: hub |\n\
                | D4.1 | s | `src/a.rs`, where it is | here |\n| D5.1 | s | `docs/page.md`, `src/a.rs` | here |";
    assert_eq!(complaints(good, &Planted), [""; 0]);
    for (from, to) in [
        ("`src/a.rs` |", "`src/b.rs` |"),
        ("a.rs::named", "a.rs::unnamed"),
        ("(`Lease::named`)", "(`Lease::unnamed`)"),
        ("(`Lease::named`)", "(`Leases`)"),
        ("`src/a.rs` |", "somewhere |"),
        ("`src/a.rs` |", "`Lease` |"),
        ("says it well", "says it badly"),
        ("`docs/page.md` (\"says it well\")", "`docs/page.md` says it"),
        ("where it is", "the rest is planned"),
        ("`src/a.rs`, where it is | here", "`src/a.rs` | perhaps"),
        ("planned: hub", "planned: nobody knows"),
        ("D3.1 | s |", "D3.1 |"),
        ("D1.2", "D1.3"),
        ("| D5.1 | s | `docs/page.md`, `src/a.rs` | here |", ""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not there");
        assert!(!complaints(&bad, &Planted).is_empty(), "{from} -> {to}");
    }
}

#[test]
fn names_that_do_not_exist_are_found_on_a_page() {
    let unknown = |page: &str| unknown_to(&Planted, page, true);
    assert_eq!(
        unknown("`src/a.rs::named`, then src/a.rs::named. And `src/a.rs`: x.rs is not meant."),
        [""; 0]
    );
    assert_eq!(unknown("`src/a.rs::name`"), ["src/a.rs::name"]);
    assert_eq!(unknown("--> src/b.rs::named"), ["src/b.rs::named"]);
    assert_eq!(unknown("see `src/b.rs`"), ["src/b.rs"]);
    assert_eq!(unknown_to(&Planted, "see `src/b.rs`", false), [""; 0]);
}
