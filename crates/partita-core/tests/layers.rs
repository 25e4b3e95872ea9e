//! The modules of the engine form layers: each knows only those below it.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first. Modules of one layer do not know each other.
const LAYERS: &[&[&str]] = &[
    &["planted"],
    &["model"],
    &["timing", "runtime"],
    &["balance", "source", "store"],
    &["report", "options"],
    &["coordination", "handler"],
    &["pump"],
    &["processor"],
    &["testkit"],
];

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| panic!("the module {module} has no place in LAYERS: give it one"))
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// The modules that a line of code names by `crate::`, also in braces; text behind `//` is no code.
fn named(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let paths = match rest.strip_prefix('{') {
            Some(several) => several.split(',').collect(),
            None => vec![rest],
        };
        for path in paths {
            let path = path.trim_start();
            let end = path.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
            names.push(&path[..end.unwrap_or(path.len())]);
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn every_module_knows_only_those_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut modules = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in paths {
        let inside = path.strip_prefix(&root).unwrap();
        let first = inside.iter().next().unwrap().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        // The crate's root names all of them; macros write out the crate's name.
        if module == "lib" {
            continue;
        }
        modules.insert(module.to_owned());
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for other in named(line) {
                // A macro or an item of the root, or its own module.
                let is_module = root.join(other).is_dir() || root.join(format!("{other}.rs")).is_file();
                if is_module && other != module && layer(other) >= layer(module) {
                    wrong.push(format!(
                        "{}:{}: {module} must not know {other}",
                        inside.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<String> =
        LAYERS.iter().flat_map(|layer| layer.iter()).map(|m| (*m).to_owned()).collect();
    assert_eq!(modules, listed, "LAYERS names exactly the modules that there are");
}
