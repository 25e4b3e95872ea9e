//! The commit that the binary is built from, for `partita --version`. Without git, or outside of a checkout, there is none,
//! and nothing fails.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Only this project's own checkout: a copy of the sources may lie in a repository of somebody else.
    let commit =
        root.join(".git").exists().then(|| git(&root, &["rev-parse", "--short=12", "HEAD"])).flatten();
    let version = match &commit {
        Some(commit) => {
            // Written at every commit and change of branch.
            if let Some(log) = git(&root, &["rev-parse", "--git-path", "logs/HEAD"]) {
                println!("cargo::rerun-if-changed={}", root.join(log).display());
            }
            format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
        }
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    println!("cargo::rustc-env=PARTITA_VERSION={version}");
}

/// What git says, in one line.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty() && !text.contains('\n')).then_some(text)
}
