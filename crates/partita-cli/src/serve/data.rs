//! Where events are kept, and emptying it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use partita_hub::broker::Reset;

use crate::Failure;
use crate::output::{Out, confirm, counted};
use crate::units::Size;

/// The data directory that the environment names.
pub(crate) fn named_dir() -> Option<PathBuf> {
    std::env::var_os("PARTITA_DATA").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The data directory of a start that names none: one per user, wherever the command is given. Without a home, as in
/// some containers, one in the current directory.
pub(crate) fn default_dir() -> PathBuf {
    user_dir(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
        .map_or_else(|| PathBuf::from("partita-data"), |dir| dir.join("hub"))
}

/// What Partita keeps for this user on this kind of system.
pub(crate) fn user_dir(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = || variable("HOME").map(PathBuf::from);
    if cfg!(windows) {
        variable("LOCALAPPDATA").map(|dir| PathBuf::from(dir).join("Partita"))
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Application Support/Partita"))
    } else {
        let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        data.or_else(|| home().map(|home| home.join(".local/share"))).map(|dir| dir.join("partita"))
    }
}

/// Empties a data directory: says what goes, and asks unless the answer was given.
pub(crate) fn reset(dir: &Path, yes: bool, out: &mut Out) -> Result<(), Failure> {
    let reset = Reset::of(dir).map_err(|error| Failure::Data(error.to_string()))?;
    if reset.hubs().is_empty() {
        return delete(reset, out, "There was no hub to delete");
    }
    out.line(&format!("--reset deletes from {}:", dir.display()))?;
    for hub in reset.hubs() {
        let bytes: u64 = hub.files.iter().map(|(_, bytes)| bytes).sum();
        let name = hub.name.as_ref().map_or("(unfinished or deleted)", |name| name.as_str());
        let files = counted(hub.files.len() as u64, "file");
        out.line(&format!("  hub {name}: all its events and groups, {files}, {}", Size(bytes)))?;
    }
    out.line("Checkpoints that processors keep elsewhere are void then: the store id changes.")?;
    let refusal =
        "--reset asks before it deletes, and there is no terminal to ask on: add --yes if you are sure";
    if !yes && !confirm(out, &format!("Delete {}? [y/N] ", Size(reset.bytes())), refusal)? {
        return Err(Failure::Run("nothing was deleted, and the hub was not started".to_owned()));
    }
    let bytes = reset.bytes();
    delete(reset, out, &format!("Deleted {}", Size(bytes)))
}

fn delete(reset: Reset, out: &mut Out, said: &str) -> Result<(), Failure> {
    let dir = reset.path().to_owned();
    reset.delete().map_err(|error| Failure::Data(error.to_string()))?;
    out.line(&format!("{said} in {}.", dir.display()))?;
    Ok(())
}

/// Writes a file so that nobody sees half of it, and only this user can read it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let unfinished = path.with_file_name(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| std::fs::rename(&unfinished, path));
    if placed.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(set: &[(&str, &str)]) -> Option<PathBuf> {
        user_dir(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn data_is_where_the_system_keeps_such_things() {
        assert_eq!(dir(&[("HOME", "/home/ada")]).unwrap(), Path::new("/home/ada/.local/share/partita"));
        let both = [("HOME", "/home/ada"), ("XDG_DATA_HOME", "/data")];
        assert_eq!(dir(&both).unwrap(), Path::new("/data/partita"));
        let relative = [("HOME", "/home/ada"), ("XDG_DATA_HOME", "data")];
        assert_eq!(dir(&relative).unwrap(), Path::new("/home/ada/.local/share/partita"));
        assert_eq!(dir(&[]), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_private_file_is_private_and_replaced_as_a_whole() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready.json");
        write_private(&path, b"first").unwrap();
        write_private(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(write_private(&dir.path().join("none/ready.json"), b"x").is_err());
    }
}
