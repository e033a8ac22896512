// SPDX-License-Identifier: Apache-2.0
//! The reader below all formats: it hashes the bytes, remembers how they end, bounds a
//! line, so that a file without line ends does not fill the memory, and numbers lines.

use sha2::{Digest, Sha256};
use std::io::{self, BufRead as _, BufReader, Read};

/// Bytes of the longest line.
const LINE: usize = 1 << 20;

/// A file, or a test's bytes.
pub type Bytes<'a> = Box<dyn Read + 'a>;

/// A reader that hashes what passes.
pub struct Tap<'a> {
    inner: Bytes<'a>,
    hasher: Sha256,
    last: Option<u8>,
    /// Bytes since the last line end; `None` where lines do not matter.
    line: Option<usize>,
}

impl<'a> Tap<'a> {
    #[must_use]
    pub fn lines(inner: Bytes<'a>) -> Self {
        Self { inner, hasher: Sha256::new(), last: None, line: Some(0) }
    }

    #[must_use]
    pub fn bytes(inner: Bytes<'a>) -> Self {
        Self { line: None, ..Self::lines(inner) }
    }

    /// Whether the last line that was read has its end.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.last.is_none_or(|byte| byte == b'\n')
    }

    /// Reads the rest and returns the SHA-256 of all bytes, in hexadecimal.
    ///
    /// # Errors
    /// What reading it said; a line that is too long.
    pub fn sha256(mut self) -> io::Result<String> {
        self.line = None;
        io::copy(&mut self, &mut io::sink())?;
        let digest = self.hasher.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Read for Tap<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let bytes = &buffer[..read];
        self.hasher.update(bytes);
        self.last = bytes.last().copied().or(self.last);
        if let Some(line) = &mut self.line {
            *line = match memchr::memrchr(b'\n', bytes) {
                Some(end) => read - end - 1,
                None => *line + read,
            };
            if *line > LINE {
                let message = format!("a line is longer than {LINE} bytes: this is no log");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        Ok(read)
    }
}

/// A line without its end.
pub struct Line<'a> {
    /// From 1.
    pub number: u64,
    pub text: &'a [u8],
    /// Whether it has no end: the writer was stopped in it.
    pub cut: bool,
}

/// The lines of a file.
pub struct Lines<'a> {
    reader: BufReader<Tap<'a>>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    #[must_use]
    pub fn of(bytes: Bytes<'a>) -> Self {
        let reader = BufReader::with_capacity(1 << 16, Tap::lines(bytes));
        Self { reader, line: Vec::new(), number: 0 }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// What reading it said; a line that is too long.
    #[expect(clippy::should_implement_trait, reason = "it lends the line")]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        if self.reader.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let mut text = self.line.as_slice();
        if self.number == 1 {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        let ended = text.strip_suffix(b"\n");
        text = ended.unwrap_or(text);
        text = text.strip_suffix(b"\r").unwrap_or(text);
        Ok(Some(Line { number: self.number, text, cut: ended.is_none() }))
    }

    /// SHA-256 of the whole file.
    ///
    /// # Errors
    /// What reading it said; a line that is too long.
    pub fn sha256(self) -> io::Result<String> {
        self.reader.into_inner().sha256()
    }
}

/// Byte order mark of UTF-8.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_covers_all_bytes() {
        // FIPS 180-2, appendix B.1.
        let tap = Tap::lines(Box::new(&b"abc"[..]));
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(tap.sha256().unwrap(), expected);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut tap = Tap::lines(Box::new(io::repeat(b'x')));
        let error = io::copy(&mut tap, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("longer than 1048576 bytes"), "{error}");
    }

    #[test]
    fn the_end_of_the_last_line_is_remembered() {
        for (text, ended) in [("", true), ("a\n", true), ("a\nb", false)] {
            let mut tap = Tap::lines(Box::new(text.as_bytes()));
            io::copy(&mut tap, &mut io::sink()).unwrap();
            assert_eq!(tap.ended(), ended, "{text:?}");
        }
    }
}
