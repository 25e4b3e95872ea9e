//! The row of a scope: where its records' versions come from, and the count of changes that others wait for.

use partita_core::model::{Incarnation, Scope};
use partita_core::store::Version;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::records::Concerns;
use super::rows::{loaded, of_incarnation, stored};

/// One scope, as the transaction found it and will leave it.
#[derive(Debug)]
pub(super) struct ScopeRow {
    id: i64,
    version_last: u64,
    changes: u64,
    all_at: u64,
    forgotten_at: u64,
}

const COLUMNS: &str = "id, version_last, changes, all_at, forgotten_at";

impl ScopeRow {
    /// None if nothing was ever written to it.
    pub(super) fn load(db: &Connection, scope: &Scope) -> Result<Option<Self>> {
        let sql =
            format!("SELECT {COLUMNS} FROM scope WHERE namespace = ?1 AND hub = ?2 AND consumer_group = ?3");
        db.prepare_cached(&sql)?.query_row(key(scope), Self::from_row).optional()
    }

    pub(super) fn load_or_insert(db: &Connection, scope: &Scope) -> Result<Self> {
        if let Some(row) = Self::load(db, scope)? {
            return Ok(row);
        }
        let sql = format!(
            "INSERT INTO scope (namespace, hub, consumer_group, version_last, changes, all_at, forgotten_at) \
             VALUES (?1, ?2, ?3, 0, 0, 0, 0) RETURNING {COLUMNS}"
        );
        db.prepare_cached(&sql)?.query_row(key(scope), Self::from_row)
    }

    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            version_last: loaded(row.get(1)?),
            changes: loaded(row.get(2)?),
            all_at: loaded(row.get(3)?),
            forgotten_at: loaded(row.get(4)?),
        })
    }

    pub(super) fn store(&self, db: &Connection) -> Result<()> {
        db.prepare_cached(
            "UPDATE scope SET version_last = ?2, changes = ?3, all_at = ?4, forgotten_at = ?5 WHERE id = ?1",
        )?
        .execute(params![
            self.id,
            stored(self.version_last),
            stored(self.changes),
            stored(self.all_at),
            stored(self.forgotten_at)
        ])
        .map(drop)
    }

    /// Whether it has no records that anything is decided by.
    pub(super) fn is_empty(&self, db: &Connection) -> Result<bool> {
        db.prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM ownership WHERE scope = ?1) \
             AND NOT EXISTS (SELECT 1 FROM instance WHERE scope = ?1) \
             AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE scope = ?1)",
        )?
        .query_row([self.id], |row| row.get(0))
    }

    /// Removes a scope that is empty.
    pub(super) fn remove(self, db: &Connection) -> Result<()> {
        for table in ["concern", "move"] {
            db.execute(&format!("DELETE FROM {table} WHERE scope = ?1"), [self.id])?;
        }
        db.execute("DELETE FROM scope WHERE id = ?1", [self.id]).map(drop)
    }

    /// All its records are another scope's from now on.
    pub(super) fn rename(self, db: &Connection, to: &Scope) -> Result<()> {
        let (namespace, hub, group) = key(to);
        db.execute(
            "UPDATE scope SET namespace = ?2, hub = ?3, consumer_group = ?4 WHERE id = ?1",
            params![self.id, namespace, hub, group],
        )
        .map(drop)
    }

    pub(super) fn id(&self) -> i64 {
        self.id
    }

    pub(super) fn cursor(&self) -> u64 {
        self.changes
    }

    pub(super) fn next_version(&mut self) -> Version {
        self.version_last += 1;
        Version::number(self.version_last)
    }

    /// Counts a change; whether somebody may wait for it.
    pub(super) fn count(&mut self, db: &Connection, concerns: Concerns) -> Result<bool> {
        match concerns {
            Concerns::Nobody => return Ok(false),
            Concerns::All => {
                self.changes += 1;
                self.all_at = self.changes;
            }
            Concerns::Named(names) => {
                self.changes += 1;
                for name in names {
                    db.prepare_cached(
                        "INSERT OR REPLACE INTO concern (scope, incarnation, at) VALUES (?1, ?2, ?3)",
                    )?
                    .execute(params![
                        self.id,
                        of_incarnation(&name),
                        stored(self.changes)
                    ])?;
                }
            }
        }
        Ok(true)
    }

    /// Whether something that concerns `me` came after `cursor`.
    pub(super) fn is_news(&self, db: &Connection, me: &Incarnation, cursor: u64) -> Result<bool> {
        let named_at: Option<i64> = db
            .prepare_cached("SELECT at FROM concern WHERE scope = ?1 AND incarnation = ?2")?
            .query_row(params![self.id, of_incarnation(me)], |row| row.get(0))
            .optional()?;
        Ok(self.all_at.max(named_at.map_or(self.forgotten_at, loaded)) > cursor)
    }

    /// Whether `me` waits for a hand-off, or somebody is about to leave what it owns.
    pub(super) fn is_pending(&self, db: &Connection, me: &Incarnation) -> Result<bool> {
        db.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM ownership WHERE scope = ?1 AND next = ?2) \
             OR EXISTS (SELECT 1 FROM instance WHERE scope = ?1 AND stopping AND died IS NULL)",
        )?
        .query_row(params![self.id, of_incarnation(me)], |row| row.get(0))
    }
}

/// Forgets what concerned those who are dead or have no record. Should one of them ask all the same, it is woken too
/// often.
pub(super) fn forget_the_gone(db: &Connection, scope: &mut ScopeRow) -> Result<()> {
    let forgotten: Vec<i64> = db
        .prepare_cached(
            "DELETE FROM concern WHERE scope = ?1 AND incarnation NOT IN \
             (SELECT incarnation FROM instance WHERE scope = ?1 AND died IS NULL) RETURNING at",
        )?
        .query_map([scope.id], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let last = forgotten.into_iter().map(loaded).max().unwrap_or(0);
    scope.forgotten_at = scope.forgotten_at.max(last);
    Ok(())
}

/// Groups compare without regard to case, so the folded name is the key.
fn key(scope: &Scope) -> (&str, &str, &str) {
    (scope.namespace.as_str(), scope.hub.as_str(), scope.group.folded())
}
