//! A file that cannot be used: one sentence that says why and what to do, and the file as it was.

#![cfg(feature = "sqlite")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use partita_core::model::{ConsumerGroup, HubName, Namespace, Scope, StreamId};
use partita_core::store::{Adoption, CheckpointStore, Resume};
use partita_stores::sqlite::{OpenError, SqliteStore};
use rusqlite::Connection;

/// A directory that goes with its test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("partita-open-{:032x}", fastrand::u128(..)));
        std::fs::create_dir(&path).expect("a directory can be made");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("checkpoints.db")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The error, after its sentence was looked at.
#[track_caller]
fn refused(path: &Path, says: &str) -> OpenError {
    let error = SqliteStore::open(path).expect_err("it cannot be opened");
    let sentence = error.to_string();
    assert!(sentence.contains(says), "{sentence}");
    assert!(sentence.contains(&path.display().to_string()), "it names the file: {sentence}");
    assert!(sentence.contains("; ") && !sentence.contains('\n'), "it says what to do: {sentence}");
    error
}

#[test]
fn a_missing_directory_is_named() {
    let directory = Directory::new();
    let error = refused(&directory.0.join("no/such/checkpoints.db"), "there is no directory");
    assert!(matches!(error, OpenError::NoDirectory { .. }));
}

#[test]
fn a_directory_is_no_file() {
    let directory = Directory::new();
    assert!(matches!(refused(&directory.0, "it is a directory"), OpenError::IsDirectory(_)));
}

#[test]
fn a_file_that_is_no_database_stays_as_it_was() {
    let directory = Directory::new();
    let text = "something that somebody wrote, and wants to keep\n".repeat(100);
    std::fs::write(directory.file(), &text).unwrap();
    assert!(matches!(refused(&directory.file(), "not a Partita database"), OpenError::NotPartita(_)));
    assert_eq!(std::fs::read_to_string(directory.file()).unwrap(), text);
}

#[test]
fn another_programs_database_stays_as_it_was() {
    let directory = Directory::new();
    let other = Connection::open(directory.file()).unwrap();
    other.execute_batch("CREATE TABLE songs (name TEXT); INSERT INTO songs VALUES ('one')").unwrap();
    drop(other);
    let bytes = std::fs::read(directory.file()).unwrap();
    assert!(matches!(refused(&directory.file(), "not a Partita database"), OpenError::NotPartita(_)));
    assert_eq!(std::fs::read(directory.file()).unwrap(), bytes);
}

#[test]
fn a_newer_schema_is_refused() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    let other = Connection::open(directory.file()).unwrap();
    other.pragma_update(None, "user_version", 7).unwrap();
    drop(other);
    let error = refused(&directory.file(), "its schema is version 7 and this program knows 2");
    assert!(matches!(error, OpenError::NewerSchema { found: 7, known: 2, .. }));
}

/// All columns of all tables, as SQLite has them.
fn columns(path: &Path) -> Vec<(String, String, String, bool, i64)> {
    let db = Connection::open(path).unwrap();
    let mut statement = db
        .prepare(
            "SELECT t.name, c.name, c.type, c.\"notnull\", c.pk FROM sqlite_schema t, pragma_table_info(t.name) c \
             WHERE t.type = 'table' ORDER BY 1, 2",
        )
        .unwrap();
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn a_database_of_the_first_version_is_upgraded_with_its_records_and_its_users_go_on() {
    let directory = Directory::new();
    let old = Connection::open(directory.file()).unwrap();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(include_str!("sqlite-schema-1.sql")).unwrap();
    old.pragma_update(None, "application_id", 0x5072_7461).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let name = "old#00000000000000000000000000000001";
    old.execute_batch(&format!(
        "INSERT INTO scope VALUES (1, 'localhost', 'hub', '$default', 5, 1, 1, 0);
         INSERT INTO instance VALUES (1, '{name}', 'h', 0, 5000, 0, '', 3, 2, 'another boot', 1, NULL, NULL);
         INSERT INTO ownership VALUES (1, '0', '{name}', 4, NULL, 0, 'claimed', '{name}', 1, 3);
         INSERT INTO checkpoint VALUES (1, '0', 4, 'handled', 41, '820', 'life', 7, '{name}', 2, 4);"
    ))
    .unwrap();

    let store = SqliteStore::open(directory.file()).unwrap();
    let scope = |namespace: &str| Scope {
        namespace: Namespace::new(namespace),
        hub: HubName::new("hub"),
        group: ConsumerGroup::default(),
    };
    let held = store.checkpoints(&scope("localhost")).await.unwrap().remove(0);
    let Some(Resume::After(last)) = &held.resume else { panic!("{held:?}") };
    assert_eq!((last.sequence.0, last.enqueued_time, held.epoch.0, held.time.0), (41, None, 4, 7));
    let seen = store.view(&scope("localhost")).await.unwrap().instances.remove(0);
    assert_eq!((seen.record.beat, seen.record.details), (3, Default::default()));

    // Who has it open goes on writing what it knows of.
    let renewed = old.execute("UPDATE instance SET beat = 4, version = 6 WHERE scope = 1", []).unwrap();
    assert_eq!(renewed, 1);
    old.execute_batch(&format!(
        "INSERT OR REPLACE INTO checkpoint (scope, partition, epoch, resume, number, \"offset\", stream, time, op_by, \
         op_number, version) VALUES (1, '0', 4, 'handled', 42, '840', 'life', 8, '{name}', 3, 7)"
    ))
    .unwrap();
    drop(old);

    // Its owner is of another boot, so nobody lives under the name without a port.
    let life = StreamId::new("life");
    let adopted = store.adopt_scope(&scope("localhost"), &scope("localhost:7001"), Some(&life)).await;
    assert_eq!(adopted.unwrap(), Adoption::Moved);
    let held = store.checkpoints(&scope("localhost:7001")).await.unwrap().remove(0);
    assert!(matches!(&held.resume, Some(Resume::After(last)) if last.sequence.0 == 42), "{held:?}");
    drop(store);

    let fresh = Directory::new();
    drop(SqliteStore::open(fresh.file()).unwrap());
    assert_eq!(columns(&directory.file()), columns(&fresh.file()), "both ways lead to the same schema");
    drop(SqliteStore::open(directory.file()).expect("it stays as it is"));
}

#[test]
fn a_damaged_database_is_refused_wherever_the_damage_is() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    let sound = std::fs::read(directory.file()).unwrap();
    let pages = sound.len() / 4096;
    assert!(pages > 5, "every table has a page of its own");
    for page in 1..pages {
        let mut damaged = sound.clone();
        damaged[page * 4096..page * 4096 + 64].fill(0x5a);
        std::fs::write(directory.file(), &damaged).unwrap();
        let error = refused(&directory.file(), "the database is damaged");
        assert!(matches!(error, OpenError::Damaged { .. }));
        assert_eq!(std::fs::read(directory.file()).unwrap(), damaged, "it was changed");
    }
    std::fs::write(directory.file(), &sound[..4096 * 2]).unwrap();
    refused(&directory.file(), "the database is damaged");
    std::fs::write(directory.file(), &sound).unwrap();
    SqliteStore::open(directory.file()).unwrap();
}

#[test]
fn a_locked_database_is_refused_after_a_while() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    let other = Connection::open(directory.file()).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let started = Instant::now();
    assert!(matches!(refused(&directory.file(), "another program keeps it locked"), OpenError::Locked(_)));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(other);
    SqliteStore::open(directory.file()).unwrap();
}

#[test]
fn many_may_open_a_new_file_at_once() {
    let directory = Directory::new();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let file = directory.file();
            std::thread::spawn(move || SqliteStore::open(file).map(drop))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn odd_paths_are_paths() {
    let directory = Directory::new();
    for name in ["a b?mode=ro&x#y%20.db", "file:x.db", "日本.db"] {
        drop(SqliteStore::open(directory.0.join(name)).unwrap());
        assert!(directory.0.join(name).is_file(), "{name}");
    }
}

/// Names the file to open, when this binary is its own child.
const AS_NOBODY: &str = "PARTITA_OPEN_AS_NOBODY";

#[cfg(unix)]
#[test]
fn a_read_only_place_is_refused() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    if let Some(path) = std::env::var_os(AS_NOBODY) {
        refused(Path::new(&path), "choose another place");
        return;
    }
    let (directory, tools) = (Directory::new(), Directory::new());
    drop(SqliteStore::open(directory.file()).unwrap());
    let bytes = std::fs::read(directory.file()).unwrap();
    let allow = |mode| {
        std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::set_permissions(directory.file(), std::fs::Permissions::from_mode(mode & 0o666)).unwrap();
    };
    allow(0o555);
    let is_root = std::fs::OpenOptions::new().append(true).open(directory.file()).is_ok();
    // Nothing is read-only to root, so somebody else has to try, with a program where everybody may look.
    let program = tools.0.join("program");
    if is_root {
        std::fs::set_permissions(&tools.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    }
    for file in [directory.file(), directory.0.join("new.db")] {
        if !is_root {
            refused(&file, "choose another place");
            continue;
        }
        let mut child = std::process::Command::new(&program);
        child.args(["--exact", "a_read_only_place_is_refused"]).env(AS_NOBODY, &file).uid(65_534).gid(65_534);
        match child.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let line = format!("\nskipped: a_read_only_place_is_refused: no other user: {error}\n");
                std::io::stderr().write_all(line.as_bytes()).unwrap();
                break;
            }
            output => {
                let output = output.unwrap();
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success() && said.contains("1 passed"), "{said}");
            }
        }
    }
    allow(0o755);
    assert_eq!(std::fs::read(directory.file()).unwrap(), bytes);
    assert!(!directory.0.join("new.db").exists());
}
