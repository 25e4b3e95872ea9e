//! Which store, as a URL.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use partita_core::store::CheckpointStore;
use partita_stores::sqlite::SqliteStore;

use crate::Failure;

/// Stores that there will be.
const PLANNED: [&str; 7] = ["blob", "azure", "redis", "postgres", "postgresql", "zookeeper", "cosmos"];

/// A store that processors share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StoreUrl {
    Sqlite(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Not repeated when it is not understood: it may hold a password.
        let how = "write sqlite:PATH, such as sqlite:checkpoints.db";
        match text.split_once(':') {
            Some(("sqlite", path)) => match path.strip_prefix("//").unwrap_or(path) {
                "" => Err(format!("it names no file: {how}")),
                path => Ok(Self::Sqlite(PathBuf::from(path))),
            },
            Some((kind, _)) if PLANNED.contains(&kind) => {
                Err(format!("this version cannot look into a {kind} store: {how}"))
            }
            _ => Err(how.to_owned()),
        }
    }
}

impl StoreUrl {
    /// Opens a store that is there: looking must not make one.
    pub(super) fn open(&self) -> Result<Arc<dyn CheckpointStore>, Failure> {
        let Self::Sqlite(path) = self;
        if !path.exists() {
            return Err(Failure::Usage(format!(
                "there is no store at {}: give the file that the processors were given",
                path.display()
            )));
        }
        if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Err(Failure::Usage(format!(
                "the store at {} is empty: no processor used it yet",
                path.display()
            )));
        }
        match SqliteStore::open(path) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(Failure::Usage(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_is_a_path_and_others_are_not_there_yet() {
        for (text, path) in
            [("sqlite:a.db", "a.db"), ("sqlite:/x/a.db", "/x/a.db"), ("sqlite:///x/a.db", "/x/a.db")]
        {
            assert_eq!(text.parse(), Ok(StoreUrl::Sqlite(path.into())));
        }
        for (text, part) in [
            ("redis://user:s3cret@host", "cannot look into a redis store"),
            ("a.db", "write sqlite:PATH"),
            ("sqlite:", "names no file"),
        ] {
            let said = text.parse::<StoreUrl>().unwrap_err();
            assert!(said.contains(part) && !said.contains("s3cret"), "{said}");
        }
    }
}
