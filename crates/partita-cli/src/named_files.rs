//! Small files that a user names: keys, certificates, settings. What is larger than any of them could be is refused, and not read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Long enough for all that is read whole.
const BYTES_MAX: u64 = 16 << 20;

/// All of a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let said = format!("it has more than {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
    }
    Ok(bytes)
}

/// All of a file that is text, without the mark of its encoding that some editors begin it with.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 16 MiB");
    }

    #[test]
    fn text_is_read_without_the_mark_of_its_encoding() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "\u{feff}text\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text\n");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("no text"));
    }
}
