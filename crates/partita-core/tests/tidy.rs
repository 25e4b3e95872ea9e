//! The rules of the code base, as tests over its text. Each rule is a pure function from texts to complaints, is
//! run over the whole repository, and is shown to fire on a planted bad input.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, with `/`, and its text.
struct File {
    path: String,
    text: String,
}

type Complaints = Vec<String>;

const LINES_MAX: usize = 800;

// ---- the rules ------------------------------------------------------------------------------------------------

/// Decisions see no runtime, clock, randomness or log. Their tests may.
fn balance_is_pure(files: &[File]) -> Complaints {
    let banned = ["tokio", "futures_util", "Instant", "SystemTime", "rand", "fastrand", "tracing", "async"];
    rust(files)
        .filter(|file| file.path.contains("partita-core/src/balance/") && !is_test_module(&file.path))
        .flat_map(|file| words_found(file, without_test_module(&file.text), &banned))
        .collect()
}

/// The wire is bytes in, frames out: only its driver knows sockets, a runtime and a clock. Times may be passed in.
fn wire_is_sans_io(files: &[File]) -> Complaints {
    let banned = ["tokio", "async", "await", "net", "TcpStream", "UnixStream", "SystemTime"];
    let clock = ["Instant::now", ".elapsed()"];
    rust(files)
        .filter(|file| file.path.contains("partita-amqp/src/") && !is_test_module(&file.path))
        .filter(|file| !file.path.split('/').any(|part| part == "driver" || part == "driver.rs"))
        .flat_map(|file| {
            let text = without_test_module(&file.text);
            let words = words_found(file, text, &banned);
            words.into_iter().chain(lines_with(file, &only(text, Kind::Code), &clock))
        })
        .collect()
}

/// A file that long is several things.
fn files_are_short(files: &[File]) -> Complaints {
    rust(files)
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| format!("{}: {lines} lines, more than {LINES_MAX}", file.path))
        .collect()
}

/// What is unfinished is not committed, and a test that is there is run.
fn nothing_is_left_undone(files: &[File]) -> Complaints {
    let in_code = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
    let in_comments = [concat!("FIX", "ME")];
    rust(files)
        .flat_map(|file| {
            let code = lines_with(file, &only(&file.text, Kind::Code), &in_code);
            let comments = lines_with(file, &only(&file.text, Kind::Comment), &in_comments);
            code.into_iter().chain(comments)
        })
        .collect()
}

/// Long runs are asked for by `PARTITA_LONG=1`, and by nothing else: 0 is not 1.
fn long_runs_are_asked_for_by_one(files: &[File]) -> Complaints {
    let asks = |line: &str| line.contains(concat!("\"PARTITA_", "LONG\"")) && !line.contains("== \"1\"");
    let lines = rust(files).flat_map(|file| file.text.lines().enumerate().map(move |line| (file, line)));
    lines
        .filter(|(_, (_, line))| asks(line))
        .map(|(file, (at, _))| format!("{}:{}: not compared with 1", file.path, at + 1))
        .collect()
}

/// A test that is only there to be started by others passes whatever happens, and is counted: they start themselves instead. Found by what
/// such tests have looked like: no test leaves when a variable of the environment is not set, or is a call of somebody's `main`.
fn helpers_are_no_tests(files: &[File]) -> Complaints {
    let mut complaints = Vec::new();
    for file in rust(files) {
        let code = only(&file.text, Kind::Code);
        let lines: Vec<&str> = code.lines().map(str::trim).collect();
        let tests =
            lines.iter().enumerate().filter(|(_, line)| line.starts_with("#[") && line.ends_with("test]"));
        for (at, _) in tests {
            let mut body = lines[at..].iter().skip_while(|line| !line.contains("fn ")).skip(1);
            let first = body.next().copied().unwrap_or_default();
            let calls_main = first.ends_with("main();") && body.next().is_some_and(|line| *line == "}");
            let leaves = first.contains("env::var") && first.contains("else { return }");
            if calls_main || leaves {
                complaints.push(format!("{}:{}: a helper that counts as a test", file.path, at + 1));
            }
        }
    }
    complaints
}

/// `unsafe` says just above why it is sound.
fn unsafe_is_explained(files: &[File]) -> Complaints {
    let mut complaints = Vec::new();
    for file in rust(files) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (at, code) in only(&file.text, Kind::Code).lines().enumerate() {
            let above = lines[..at].iter().rev().take_while(|x| x.starts_with("//") || x.starts_with("#["));
            let explained = above.chain([&lines[at]]).any(|line| line.contains("SAFETY:"));
            if has_word(code, "unsafe") && !explained {
                complaints.push(format!("{}:{}: unsafe without SAFETY: above it", file.path, at + 1));
            }
        }
    }
    complaints
}

/// Every queue has a capacity.
fn channels_are_bounded(files: &[File]) -> Complaints {
    let banned = ["unbounded_channel", "UnboundedSender", "mpsc::unbounded", "mpsc::channel()"];
    rust(files).flat_map(|file| lines_with(file, &only(&file.text, Kind::Code), &banned)).collect()
}

/// Every source file is the root of a target or is named by a `mod` of its parent.
fn modules_are_referenced(files: &[File]) -> Complaints {
    rust(files)
        .filter(|file| {
            let manifests = files.iter().filter_map(|x| Some((x.path.strip_suffix("Cargo.toml")?, &x.text)));
            let packages = manifests.filter(|(folder, _)| file.path.starts_with(folder));
            let Some((package, manifest)) = packages.max_by_key(|(folder, _)| folder.len()) else {
                return true;
            };
            let is_root = |path: &str| is_target_root(&path[package.len()..], manifest);
            let (folder, module) = module_of(&file.path);
            let is_parent = |other: &&File| {
                let (its_folder, its_name) = other.path.rsplit_once('/').unwrap_or(("", &other.path));
                let beside = its_folder == folder && (its_name == "mod.rs" || is_root(&other.path));
                other.path.starts_with(package) && (beside || other.path == format!("{folder}.rs"))
            };
            !is_root(&file.path) && !rust(files).filter(is_parent).any(|x| declares(&x.text, module))
        })
        .map(|file| format!("{}: no mod refers to it", file.path))
        .collect()
}

/// Whether cargo builds a target from this file of a package, by itself or because the manifest says so.
fn is_target_root(path: &str, manifest: &str) -> bool {
    let found_by_cargo = matches!(
        path.split('/').collect::<Vec<_>>()[..],
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["tests" | "examples" | "benches", _]
            | ["tests" | "examples" | "benches", _, "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
    );
    found_by_cargo || manifest.contains(&format!("\"{path}\""))
}

/// The folder in which the parent of a module's file is found, and the module's name.
fn module_of(path: &str) -> (&str, &str) {
    let stem = path.strip_suffix("/mod.rs").unwrap_or_else(|| path.trim_end_matches(".rs"));
    stem.rsplit_once('/').unwrap_or(("", stem))
}

fn declares(text: &str, module: &str) -> bool {
    let code = only(text, Kind::Code);
    let mut items: Vec<&str> = code.split(';').collect();
    items.pop();
    let tails = items.iter().filter_map(|item| item.rsplit(['{', '}', ']']).next());
    tails.map(str::trim).any(|tail| tail.strip_suffix(module).is_some_and(|x| has_word(x, "mod")))
}

/// Lints are the workspace's, in every package of it; what is a workspace of its own has none to inherit.
fn packages_inherit_the_lints(files: &[File]) -> Complaints {
    files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml") && file.text.contains("[package]"))
        .filter(|file| !file.text.contains("[workspace]"))
        .filter(|file| !file.text.contains("[lints]\nworkspace = true"))
        .map(|file| format!("{}: no [lints] workspace = true", file.path))
        .collect()
}

/// Decisions are dated, so that the later of two is the one that holds.
fn decisions_are_dated(files: &[File]) -> Complaints {
    let dated = |name: &str| {
        let parts: Vec<&str> = name.splitn(4, '-').collect();
        let [year, month, day, topic] = parts[..] else { return false };
        let within = |text: &str, digits: usize, range: std::ops::RangeInclusive<u32>| {
            text.len() == digits && text.parse().is_ok_and(|number| range.contains(&number))
        };
        within(year, 4, 2_000..=2_999)
            && within(month, 2, 1..=12)
            && within(day, 2, 1..=31)
            && topic.strip_suffix(".md").is_some_and(|topic| !topic.is_empty())
    };
    files
        .iter()
        .filter_map(|file| file.path.strip_prefix("docs/decisions/"))
        .filter(|name| !dated(name))
        .map(|name| format!("docs/decisions/{name}: not named YYYY-MM-DD-topic.md"))
        .collect()
}

/// A changelog without a place for the next line does not get one.
fn changelog_has_a_place_for_news(files: &[File]) -> Complaints {
    let has = |file: &File| file.path == "CHANGELOG.md" && file.text.contains("\n## [Unreleased]");
    if files.iter().any(has) { Vec::new() } else { vec!["CHANGELOG.md: no [Unreleased]".into()] }
}

/// Relative links lead to something in the repository.
fn links_resolve(files: &[File], exists: impl Fn(&str) -> bool) -> Complaints {
    let mut complaints = Vec::new();
    for file in markdown(files) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose_lines(&file.text) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split(['#', ' ']).next().unwrap_or_default();
                let elsewhere = path.is_empty() || path.contains(':');
                if !elsewhere && !resolve(folder, path).is_some_and(|path| exists(&path)) {
                    complaints.push(format!("{}:{number}: link to {path} leads nowhere", file.path));
                }
            }
        }
    }
    complaints
}

/// Documents speak of the repository, not of the machine that somebody wrote them on.
fn docs_name_no_machine_paths(files: &[File]) -> Complaints {
    let roots = ["/work/", "/root/", "/tmp/", "/home/"];
    let is_absolute = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}>".contains(c))
    };
    let mut complaints = Vec::new();
    for file in markdown(files) {
        for (at, line) in file.text.lines().enumerate() {
            let found = |root: &&str| line.match_indices(*root).any(|(at, _)| is_absolute(line, at));
            let found = roots.iter().find(|&root| found(root));
            complaints.extend(found.map(|root| format!("{}:{}: {root}", file.path, at + 1)));
        }
    }
    complaints
}

// ---- reading text ---------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Rust text with all that is of another kind blanked; lines stay where they are.
fn only(text: &str, wanted: Kind) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (kind, length) = token(&chars[at..]);
        let end = (at + length).min(chars.len());
        out.extend(chars[at..end].iter().map(|&c| if kind == wanted || c == '\n' { c } else { ' ' }));
        at = end;
    }
    out
}

/// The kind and length of what `chars` begin with: a whole comment or literal, or a character or word of code.
fn token(chars: &[char]) -> (Kind, usize) {
    let get = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let find = |from: usize, end: &dyn Fn(usize) -> bool| {
        (from..chars.len()).find(|&i| end(i)).unwrap_or(chars.len())
    };
    match (get(0), get(1)) {
        ('/', '/') => (Kind::Comment, find(2, &|i| get(i) == '\n')),
        ('/', '*') => {
            let (mut depth, mut i) = (1, 2);
            while depth > 0 && i < chars.len() {
                (depth, i) = match (get(i), get(i + 1)) {
                    ('*', '/') => (depth - 1, i + 2),
                    ('/', '*') => (depth + 1, i + 2),
                    _ => (depth, i + 1),
                };
            }
            (Kind::Comment, i)
        }
        ('"', _) => {
            let mut i = 1;
            while i < chars.len() && get(i) != '"' {
                i += if get(i) == '\\' { 2 } else { 1 };
            }
            (Kind::Literal, i + 1)
        }
        ('\'', '\\') => (Kind::Literal, find(3, &|i| get(i) == '\'') + 1),
        ('\'', _) if get(2) == '\'' => (Kind::Literal, 3),
        (c, _) if is_of_word(c) => {
            let word = find(1, &|i| !is_of_word(get(i)));
            let hashes = find(word, &|i| get(i) != '#') - word;
            let raw = ["r", "br", "cr"].iter().any(|prefix| prefix.chars().eq(chars[..word].iter().copied()));
            if !raw || get(word + hashes) != '"' {
                return (Kind::Code, word);
            }
            let closes = |i: usize| get(i) == '"' && (1..=hashes).all(|h| get(i + h) == '#');
            (Kind::Literal, find(word + hashes + 1, &closes) + 1 + hashes)
        }
        _ => (Kind::Code, 1),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c| !is_of_word(c)).any(|found| found == word)
}

/// The text up to a test module written in place.
fn without_test_module(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

fn is_test_module(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn words_found(file: &File, text: &str, banned: &[&str]) -> Complaints {
    complaints_about(file, &only(text, Kind::Code), banned, has_word)
}

fn lines_with(file: &File, text: &str, banned: &[&str]) -> Complaints {
    complaints_about(file, text, banned, |line, text| line.contains(text))
}

fn complaints_about(file: &File, text: &str, banned: &[&str], has: fn(&str, &str) -> bool) -> Complaints {
    let found = |line: &str| banned.iter().copied().find(|x| has(line, x));
    let found = text.lines().enumerate().filter_map(|(at, line)| Some((at, found(line)?)));
    found.map(|(at, what)| format!("{}:{}: {what}", file.path, at + 1)).collect()
}

/// Lines of a Markdown text outside code blocks, without code spans, with their numbers.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            lines.push((at + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

/// `path` seen from `folder`, from the root; nothing if it leaves the repository.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

fn markdown(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

// ---- the repository -------------------------------------------------------------------------------------------

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// Every source, manifest and document, except what tools put there.
fn repository() -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type().expect("a type").is_dir() {
                let of_a_tool = ["target", "node_modules", "venv"].contains(&name.as_str());
                if !of_a_tool && !name.starts_with('.') && !entry.path().join("CACHEDIR.TAG").exists() {
                    folders.push(path);
                }
            } else if [".rs", ".md", ".toml"].iter().any(|end| name.ends_with(end)) {
                let text = std::fs::read_to_string(entry.path()).expect("text in UTF-8");
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn planted(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect()
}

/// Every file of `bad`, given alone, is complained about; no file of `good` is.
#[track_caller]
fn tells_apart(rule: impl Fn(&[File]) -> Complaints, bad: &[(&str, &str)], good: &[(&str, &str)]) {
    for file in bad {
        assert!(!rule(&planted(&[*file])).is_empty(), "the rule does not fire on {file:?}");
    }
    for file in good {
        assert_eq!(rule(&planted(&[*file])), Complaints::new(), "the rule fires on {file:?}");
    }
}

mod holds {
    use super::*;

    #[test]
    fn the_walk_sees_the_repository() {
        let paths: BTreeSet<String> = repository().into_iter().map(|file| file.path).collect();
        for path in ["Cargo.toml", "README.md", "docs/glossary.md", "crates/partita-core/tests/tidy.rs"] {
            assert!(paths.contains(path), "{path}");
        }
    }

    macro_rules! over_the_repository {
        ($($rule:ident $(($argument:expr))?;)*) => {$(
            #[test]
            fn $rule() {
                let complaints = super::$rule(&repository() $(, $argument)?);
                assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
            }
        )*};
    }

    over_the_repository! {
        balance_is_pure;
        wire_is_sans_io;
        files_are_short;
        nothing_is_left_undone;
        long_runs_are_asked_for_by_one;
        helpers_are_no_tests;
        unsafe_is_explained;
        channels_are_bounded;
        modules_are_referenced;
        packages_inherit_the_lints;
        decisions_are_dated;
        changelog_has_a_place_for_news;
        links_resolve(exists);
        docs_name_no_machine_paths;
    }
}

mod fires {
    use super::*;

    #[test]
    fn balance_is_pure() {
        let path = "crates/partita-core/src/balance/x.rs";
        tells_apart(
            super::balance_is_pure,
            &[
                (path, "use tokio::time;"),
                (path, "fn f() { std::time::Instant::now(); }"),
                (path, "fn f() { SystemTime::now(); }"),
                (path, "fn f() { rand::random(); }"),
                (path, "fn f() { fastrand::u8(..); }"),
                (path, "fn f() { tracing::info!(1); }"),
            ],
            &[
                (path, "// no tokio here\nfn operand() { \"tokio\"; }"),
                (path, "fn f() {}\n#[cfg(test)]\nmod tests { use fastrand::Rng; }"),
                ("crates/partita-core/src/balance/tests.rs", "use fastrand::Rng;"),
                ("crates/partita-core/src/pump.rs", "use tokio::time;"),
            ],
        );
    }

    #[test]
    fn wire_is_sans_io() {
        let path = "crates/partita-amqp/src/session.rs";
        tells_apart(
            super::wire_is_sans_io,
            &[
                (path, "use tokio::io;"),
                (path, "use std::net::IpAddr;"),
                (path, "async fn f() {}"),
                (path, "fn f() { Instant::now(); }"),
            ],
            &[
                (path, "fn network() {}"),
                (path, "fn f(now: Instant) {}"),
                ("crates/partita-amqp/src/driver.rs", "use tokio::io;"),
                ("crates/partita-amqp/src/driver/tls.rs", "use tokio::io;"),
            ],
        );
    }

    #[test]
    fn files_are_short() {
        let (long, fits) = ("x\n".repeat(LINES_MAX + 1), "x\n".repeat(LINES_MAX));
        tells_apart(super::files_are_short, &[("a.rs", &long)], &[("a.rs", &fits), ("a.md", &long)]);
    }

    #[test]
    fn nothing_is_left_undone() {
        tells_apart(
            super::nothing_is_left_undone,
            &[
                ("a.rs", "fn f() { todo!() }"),
                ("a.rs", "fn f() { unimplemented!() }"),
                ("a.rs", "fn f() { dbg!(1); }"),
                ("a.rs", "#[test]\n#[ignore]\nfn f() {}"),
                ("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
                ("a.rs", concat!("// FIX", "ME")),
            ],
            &[("a.rs", "// todo! is a macro\nfn f() { \"dbg!\"; r#\"todo!\"\"#; '\"'; b'\\''; }")],
        );
    }

    #[test]
    fn long_runs_are_asked_for_by_one() {
        let asked = concat!("env::var_os(\"PARTITA_", "LONG\")");
        tells_apart(
            super::long_runs_are_asked_for_by_one,
            &[("a.rs", &format!("let long = {asked}.is_some();"))],
            &[("a.rs", &format!("let long = {asked}.is_some_and(|long| long == \"1\");"))],
        );
    }

    #[test]
    fn helpers_are_no_tests() {
        tells_apart(
            super::helpers_are_no_tests,
            &[
                ("a.rs", "#[test]\nfn worker_process() {\n    worker::main();\n}"),
                (
                    "a.rs",
                    "#[tokio::test]\nasync fn child() {\n    let Ok(x) = std::env::var(X) else { return };\n    f(x);\n}",
                ),
            ],
            &[
                (
                    "a.rs",
                    "#[test]\nfn f() {\n    if let Some(x) = std::env::var_os(X) {\n        return g(x);\n    }\n}",
                ),
                ("a.rs", "#[test]\nfn f() {\n    assert!(main());\n}"),
                ("a.rs", "fn f() {\n    worker::main();\n}"),
            ],
        );
    }

    #[test]
    fn unsafe_is_explained() {
        tells_apart(
            super::unsafe_is_explained,
            &[
                ("a.rs", "fn f() {\n    unsafe { g() }\n}"),
                ("a.rs", "// SAFETY: far away\n\nfn f() {\n    unsafe { g() }\n}"),
            ],
            &[
                ("a.rs", "// SAFETY: g is fine\n// with anything\n#[inline]\nunsafe fn f() {}"),
                ("a.rs", "/* unsafe /* nested */ */\nfn f() { \"unsafe\"; }\n#![deny(unsafe_code)]"),
            ],
        );
    }

    #[test]
    fn channels_are_bounded() {
        tells_apart(
            super::channels_are_bounded,
            &[("a.rs", "let (a, b) = mpsc::unbounded_channel();"), ("a.rs", "let (a, b) = mpsc::channel();")],
            &[("a.rs", "let (a, b) = mpsc::channel(8);\nlet (c, d) = oneshot::channel();")],
        );
    }

    #[test]
    fn modules_are_referenced() {
        let alive = [
            ("a/Cargo.toml", "[[bin]]\npath = \"odd/tool.rs\""),
            ("a/odd/tool.rs", ""),
            ("a/src/lib.rs", "mod one;\npub(crate) mod two; // mod dead;\nfn f() { \"mod dead;\"; }"),
            ("a/src/one.rs", "mod inner;"),
            ("a/src/one/inner.rs", ""),
            ("a/src/two/mod.rs", "#[cfg(test)] mod tests;\nmod dead {}"),
            ("a/src/two/tests.rs", ""),
            ("a/tests/it.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
        ];
        assert_eq!(super::modules_are_referenced(&planted(&alive)), Complaints::new());
        for dead in ["a/src/dead.rs", "a/src/two/dead.rs", "a/tests/dead/mod.rs", "b/dead.rs"] {
            let mut files = planted(&alive);
            files.push(File { path: dead.into(), text: String::new() });
            assert_eq!(super::modules_are_referenced(&files), [format!("{dead}: no mod refers to it")]);
        }
    }

    #[test]
    fn packages_inherit_the_lints() {
        tells_apart(
            super::packages_inherit_the_lints,
            &[("a/Cargo.toml", "[package]\nname = \"a\"")],
            &[
                ("a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"),
                ("Cargo.toml", "[workspace]"),
                ("b/Cargo.toml", "[workspace]\n\n[package]\nname = \"b\""),
            ],
        );
    }

    #[test]
    fn decisions_are_dated() {
        tells_apart(
            super::decisions_are_dated,
            &[
                ("docs/decisions/README.md", ""),
                ("docs/decisions/2026-13-01-topic.md", ""),
                ("docs/decisions/2026-11-1-topic.md", ""),
                ("docs/decisions/2026-11-01-.md", ""),
            ],
            &[("docs/decisions/2026-11-01-a-topic.md", ""), ("docs/glossary.md", "")],
        );
    }

    #[test]
    fn changelog_has_a_place_for_news() {
        tells_apart(
            super::changelog_has_a_place_for_news,
            &[("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n"), ("a.md", "\n## [Unreleased]")],
            &[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")],
        );
    }

    #[test]
    fn links_resolve() {
        tells_apart(
            |files| super::links_resolve(files, |path| path == "docs/there.md"),
            &[
                ("docs/a.md", "[x](nowhere.md)"),
                ("docs/a.md", "[x](there.md) and [y](docs/there.md)"),
                ("docs/a.md", "[x](../../docs/there.md)"),
            ],
            &[
                ("docs/a.md", "[x](there.md#part) [y](https://example.org) [z](#here) `[w](no.md)`"),
                ("README.md", "[x](docs/there.md)\n```\n[y](no.md)\n```"),
            ],
        );
    }

    #[test]
    fn docs_name_no_machine_paths() {
        tells_apart(
            super::docs_name_no_machine_paths,
            &[("a.md", "see /work/x"), ("a.md", "`/tmp/y`"), ("a.md", "in (/root/z)")],
            &[("a.md", "crates/work/x and ./tmp/y and /rooted"), ("a.rs", "// /tmp/x")],
        );
    }
}
