//! The ready file: what a program that started the hub has to know, there as soon as it can connect.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::data::write_private;

/// What is in it.
#[derive(Serialize, Clone)]
pub(crate) struct Ready {
    pub(crate) amqp_port: u16,
    pub(crate) http_port: u16,
    pub(crate) connection_string: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_connection_string: Option<String>,
    /// The authority that clients must trust, if the hub made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_ca_file: Option<PathBuf>,
    pub(crate) pid: u32,
}

/// The file while the hub runs; it goes with this.
pub(crate) struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Whether the place is free, or holds what a former run left; anything else is somebody's.
    pub(crate) fn check(path: &Path) -> Result<(), String> {
        let content = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            content => content.map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        let ours = serde_json::from_slice(&content)
            .is_ok_and(|json: serde_json::Value| json.get("connection_string").is_some());
        match content.is_empty() || ours {
            true => Ok(()),
            false => Err(format!("{} holds something else: choose another --ready-file", path.display())),
        }
    }

    /// Removes what a former run left: nobody shall take it for this one's.
    pub(crate) fn clear(path: &Path) -> Result<(), String> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove the ready file {} of a former run: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes it. Only this user can read it: a connection string has a key in it.
    pub(crate) fn write(path: PathBuf, ready: &Ready) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| {
            format!("cannot write the ready file {}: {error}", path.display())
        };
        let mut json = serde_json::to_vec(ready).map_err(|error| fail(&error))?;
        json.push(b'\n');
        write_private(&path, &json).map_err(|error| fail(&error))?;
        Ok(Self(path))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
