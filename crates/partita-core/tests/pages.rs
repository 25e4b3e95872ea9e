//! What a test can check of the pages that people read: the first page begins with what it is about, its figures are those that were measured,
//! and crates say what they are. Each rule is a pure function from texts to complaints, and is shown to fire on a bad text.

use std::path::{Path, PathBuf};

/// About two screens.
const README_LINES_MAX: usize = 100;

/// Pages are wrapped at 100; a link may make a line a little longer.
const COLUMNS_MAX: usize = 120;

/// Written by programs, or rows of tables.
const NOT_WRAPPED: [&str; 4] =
    ["CHANGELOG.md", "benches/README.md", "docs/compatibility.md", "docs/seeds-map.md"];

/// The first page: its name, a sentence that says what it is, a picture, and what to type.
fn wrong_with_the_opening(readme: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut blocks = readme.split("\n\n").map(str::trim);
    let mut next = |what: &str, fits: fn(&str) -> bool| {
        if !blocks.next().is_some_and(fits) {
            complaints.push(format!("README.md: {what} does not come where it should"));
        }
    };
    next("its title", |block| block.starts_with("# ") && block.lines().count() == 1);
    next("a sentence that says what it is", |block| {
        block.starts_with(char::is_alphabetic) && block.ends_with('.') && !block.contains(". ")
    });
    next("a picture", |block| block.starts_with("![") && block.ends_with(".svg)"));
    next("the two commands", |block| {
        let lines: Vec<&str> = block.lines().collect();
        matches!(lines[..], [open, demo, test, "```"]
            if open == "```sh" && demo.starts_with("cargo run --release -- demo") && test.starts_with("./test"))
    });
    let lines = readme.lines().count();
    if lines > README_LINES_MAX {
        complaints
            .push(format!("README.md: {lines} lines, more than {README_LINES_MAX}: move something to docs"));
    }
    complaints
}

/// The rows of the table of figures, as they stand on the page of the benchmarks: name, value, the peer's value, ratio.
fn figures_not_measured(readme: &str, benchmarks: &str) -> Vec<String> {
    let section = readme.split("\n## ").find(|section| section.starts_with("Figures\n")).unwrap_or_default();
    let rows: Vec<Vec<&str>> =
        section.lines().filter(|line| line.starts_with('|')).skip(2).map(cells).collect();
    if rows.is_empty() {
        return vec!["README.md: there are no figures".to_owned()];
    }
    let measured: Vec<Vec<&str>> =
        benchmarks.lines().filter(|line| line.starts_with('|')).map(cells).collect();
    let stands = |row: &Vec<&str>| {
        let [name, value, peer, ratio] = row[..] else { return false };
        measured.iter().any(|cells| match cells[..] {
            [its_name, its_value, its_peer, its_ratio] => {
                name.starts_with(its_name)
                    && value == its_value
                    && its_peer.ends_with(peer)
                    && ratio == its_ratio
            }
            _ => false,
        })
    };
    let missing = rows.iter().filter(|row| !stands(row));
    missing.map(|row| format!("README.md: not in benches/README.md, copy it from there: {row:?}")).collect()
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// What a registry shows of a crate. Those that are not published need nothing.
fn not_described(manifest: &str) -> Vec<&'static str> {
    let wanted = ["description", "documentation", "readme", "keywords", "categories", "license"];
    let has = |key: &str| manifest.lines().any(|line| line.starts_with(key));
    let published = manifest.contains("[package]") && !manifest.contains("\npublish = false");
    wanted.into_iter().filter(|key| published && !has(key)).collect()
}

/// The picture of the crates: each uses only crates below it. Crates and their line in the picture, against what their manifests say.
fn upside_down(picture: &str, dependencies: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let is_crate = |word: &String| word == "partita" || word.starts_with("partita-");
    let lines = picture.lines().map(|line| words(line).into_iter().filter(is_crate).collect::<Vec<_>>());
    let height = |name: &str| lines.clone().position(|line| line.iter().any(|found| found == name));
    let mut complaints = Vec::new();
    for name in lines.clone().flatten() {
        for used in dependencies(&name) {
            if height(&used).is_none_or(|line| Some(line) <= height(&name)) {
                complaints.push(format!("ARCHITECTURE.md: {name} uses {used}, which is not below it"));
            }
        }
    }
    complaints
}

/// The crates of this workspace that a manifest depends on, but for its tests.
fn used_by(manifest: &str) -> Vec<String> {
    let sections = manifest.split("\n[").filter(|section| section.starts_with("dependencies]"));
    let names = sections.flat_map(str::lines).filter_map(|line| line.split(['.', ' ']).next());
    names.filter(|name| *name == "partita" || name.starts_with("partita-")).map(str::to_owned).collect()
}

/// Lines of prose that are too long to read. Tables, code, headings and pictures are as long as they are.
fn not_wrapped(path: &str, page: &str) -> Vec<String> {
    let (mut in_code, mut complaints) = (false, Vec::new());
    for (number, line) in page.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code && !["|", "#", "!", "<"].iter().any(|start| text.starts_with(start));
        if is_prose && line.chars().count() > COLUMNS_MAX {
            complaints.push(format!("{path}:{}: wrap it with python3 docs/wrap.py {path}", number + 1));
        }
    }
    complaints
}

/// Links with a `#` whose page has no such heading. That the page itself exists is checked by `tidy.rs`.
fn sections_missing(pages: &[(String, String)]) -> Vec<String> {
    let mut missing = Vec::new();
    for (path, text) in pages {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
        for (page, section) in targets.filter_map(|target| target.split_once('#')) {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let meant = if page.is_empty() { path.clone() } else { joined(folder, page) };
            let found = pages.iter().find(|(path, _)| *path == meant);
            if found.is_some_and(|(_, text)| !headings(text).any(|heading| heading == section)) {
                missing.push(format!("{path}: {meant} has no section #{section}"));
            }
        }
    }
    missing
}

/// The names by which the headings of a page are linked to.
fn headings(page: &str) -> impl Iterator<Item = String> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}

fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

// ---- the repository -------------------------------------------------------------------------------------------

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[track_caller]
fn nothing_in(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_first_page_begins_with_what_it_is_and_what_to_type() {
    nothing_in(wrong_with_the_opening(&read("README.md")));
}

#[test]
fn the_first_page_shows_only_figures_that_were_measured() {
    nothing_in(figures_not_measured(&read("README.md"), &read("benches/README.md")));
}

#[test]
fn crates_that_are_published_say_what_they_are() {
    let manifest = read("Cargo.toml");
    let members =
        manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"crates/partita"), "{members:?}");
    let missing = members.iter().flat_map(|member| {
        let missing = not_described(&read(&format!("{member}/Cargo.toml")));
        missing.into_iter().map(move |key| format!("{member}/Cargo.toml: no {key}"))
    });
    nothing_in(missing.collect());
}

#[test]
fn the_picture_of_the_crates_has_each_above_what_it_uses() {
    let page = read("ARCHITECTURE.md");
    let picture = page.split("**The crates.**").nth(1).and_then(|rest| rest.split("```").nth(1));
    let picture = picture.expect("the picture of the crates");
    let dependencies = |name: &str| {
        let folder = if name == "partita-sim" { "sim".to_owned() } else { format!("crates/{name}") };
        used_by(&read(&format!("{folder}/Cargo.toml")))
    };
    assert!(picture.contains("partita-cli") && !dependencies("partita-cli").is_empty());
    nothing_in(upside_down(picture, dependencies));
}

/// All Markdown pages, except what tools put there.
fn pages() -> Vec<(String, String)> {
    let (mut pages, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let of_a_tool =
                ["target", "node_modules", "venv"].contains(&name.as_str()) || name.starts_with('.');
            if entry.file_type().expect("a type").is_dir() {
                if !of_a_tool && !entry.path().join("CACHEDIR.TAG").exists() {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                let text = read(&path);
                pages.push((path, text));
            }
        }
    }
    assert!(pages.len() > 40, "{} pages", pages.len());
    pages
}

#[test]
fn prose_is_wrapped() {
    let pages = pages().into_iter().filter(|(path, _)| !NOT_WRAPPED.contains(&path.as_str()));
    nothing_in(pages.flat_map(|(path, text)| not_wrapped(&path, &text)).collect());
}

#[test]
fn links_to_sections_lead_to_sections() {
    nothing_in(sections_missing(&pages()));
}

// ---- the checks themselves ------------------------------------------------------------------------------------

#[test]
fn a_first_page_that_begins_otherwise_is_told_from_one_that_does_not() {
    let good = "# P\n\nP is a thing\nfor events.\n\n![the demo](a.svg)\n\n```sh\ncargo run --release -- demo # see\n./test # check\n```\n\nMore.";
    assert_eq!(wrong_with_the_opening(good), [""; 0]);
    for (from, to) in [
        ("# P\n\n", ""),
        ("P is a thing\nfor events.\n\n", ""),
        ("for events.", "for events. And more."),
        ("![the demo](a.svg)\n\n", ""),
        ("./test # check\n", ""),
        ("More.", &"x\n".repeat(README_LINES_MAX)),
    ] {
        assert_ne!(wrong_with_the_opening(&good.replacen(from, to, 1)), [""; 0], "{from} -> {to}");
    }
}

#[test]
fn a_figure_that_was_not_measured_is_found() {
    let page = "| figure | value | limit or peer | ratio |\n| --- | ---: | --- | ---: |\n| send, beside R | 6.2 M/s | R, best 0.5 M/s | 12.4 |";
    let readme = "x\n\n## Figures\n\n| what | here | peer | ratio |\n| --- | --- | --- | --- |\n| send, beside R | 6.2 M/s | 0.5 M/s | 12.4 |\n";
    assert_eq!(figures_not_measured(readme, page), [""; 0]);
    for (from, to) in [
        ("6.2 M/s", "6.3 M/s"),
        ("0.5 M/s", "0.4 M/s"),
        ("12.4", "13"),
        ("send", "drain"),
        ("| send", "send"),
    ] {
        assert_ne!(figures_not_measured(&readme.replacen(from, to, 1), page), [""; 0], "{from} -> {to}");
    }
}

#[test]
fn a_crate_that_does_not_say_what_it_is_is_found() {
    let good = "[package]\nname = \"a\"\ndescription = \"d\"\nlicense.workspace = true\ndocumentation = \"u\"\nreadme = \"README.md\"\nkeywords = []\ncategories = []\n";
    assert_eq!(not_described(good), [""; 0]);
    assert_eq!(not_described(&good.replace("keywords", "#")), ["keywords"]);
    assert_eq!(not_described("[package]\nname = \"a\"\npublish = false\n"), [""; 0]);
}

#[test]
fn a_crate_that_stands_below_what_it_uses_is_found() {
    let manifest = "[package]\nname = \"partita-b\"\n\n[dependencies]\nbytes = \"1\"\npartita-a.workspace = true\n\n[dev-dependencies]\npartita-c = { path = \".\" }\n";
    assert_eq!(used_by(manifest), ["partita-a"]);
    let uses = |name: &str| if name == "partita-b" { used_by(manifest) } else { Vec::new() };
    assert_eq!(upside_down("partita-b the upper\npartita-a", uses), [""; 0]);
    for wrong in ["partita-a\npartita-b", "partita-a partita-b", "partita-b"] {
        assert_ne!(upside_down(wrong, uses), [""; 0], "{wrong}");
    }
}

#[test]
fn a_line_of_prose_that_is_too_long_is_found() {
    let (long, fits) = ("x ".repeat(COLUMNS_MAX / 2 + 1), "x ".repeat(COLUMNS_MAX / 2));
    assert_eq!(
        not_wrapped("a.md", &format!("{fits}\n| {long}\n# {long}\n```\n{long}\n```\n![{long}](a.svg)")),
        [""; 0]
    );
    assert_eq!(
        not_wrapped("a.md", &format!("a\n- {long}")),
        ["a.md:2: wrap it with python3 docs/wrap.py a.md"]
    );
    assert_eq!(not_wrapped("a.md", &format!("```\n```\n{long}")).len(), 1);
}

#[test]
fn a_link_to_a_section_that_is_not_there_is_found() {
    let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let target = page("docs/b.md", "# B\n\n## When it's `damaged`, act\n");
    let check = |text: &str| sections_missing(&[page("docs/a/c.md", text), target.clone()]);
    assert_eq!(
        check("# C\n[x](../b.md#when-its-damaged-act) [y](#c) [z](https://example.org#d) [w](../b.md)"),
        [""; 0]
    );
    assert_eq!(check("[x](../b.md#when)").len(), 1);
    assert_eq!(check("# C\n[x](#d)").len(), 1);
}
