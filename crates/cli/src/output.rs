//! Standard output: bytes as they are, colours only on a terminal.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery::error::Escaped;
use creamery::{Error, FileType};

pub(crate) use crate::closed_output::writing;

/// Prints a line about finished work. Errors are ignored here: a closed pipe or a full disk undoes nothing, and is reported elsewhere. On a
/// terminal names are escaped.
pub(crate) fn tell(line: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let told = match out.is_terminal() {
        true => writeln!(out, "{}", Escaped(line.to_string().as_bytes())),
        false => writeln!(out, "{line}"),
    };
    if let Err(error) = told
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        crate::failure::warn(&writing(error).to_string());
    }
}

/// Standard output, buffered.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    colors: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let colors = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        Self { out: BufWriter::with_capacity(64 << 10, stdout.lock()), terminal, colors: terminal && colors }
    }

    /// Prints a name: on a terminal control characters are escaped, elsewhere the bytes are unchanged.
    pub(crate) fn name(&mut self, name: &[u8], kind: FileType) -> io::Result<()> {
        let (on, off) = if self.colors { paint(kind) } else { ("", "") };
        self.out.write_all(on.as_bytes())?;
        if self.terminal {
            write!(self.out, "{}", Escaped(name))?;
        } else {
            self.out.write_all(name)?;
        }
        self.out.write_all(off.as_bytes())
    }

    /// Prints a path like [`Output::name`].
    pub(crate) fn path(&mut self, path: &Path) -> io::Result<()> {
        self.path_bytes(path.as_os_str().as_bytes())
    }

    /// Prints a path of the filesystem like [`Output::name`].
    pub(crate) fn path_bytes(&mut self, path: &[u8]) -> io::Result<()> {
        self.name(path, FileType::File)
    }

    /// Prints the help of a command, with colours if they are on.
    pub(crate) fn styled(&mut self, text: &clap::builder::StyledStr) -> io::Result<()> {
        match self.colors {
            true => write!(self.out, "{}", text.ansi()),
            false => write!(self.out, "{text}"),
        }
    }

    /// Flushes the output.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.out.flush().map_err(writing)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Output of a printer that puts names between its own words and lines, byte for byte as btrfs-progs prints them; on a terminal they are
/// escaped all the same.
pub(crate) struct Printed<'a>(pub(crate) &'a mut Output);

impl Write for Printed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.0.terminal {
            return self.0.write(bytes);
        }
        write_printed(&mut self.0.out, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes everything but the ends of lines and the tabs that a printer indents with.
fn write_printed(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let is_layout = |byte: &u8| matches!(byte, b'\n' | b'\t');
    for piece in bytes.split_inclusive(is_layout) {
        let text = piece.len() - usize::from(piece.last().is_some_and(is_layout));
        write!(out, "{}", Escaped(&piece[..text]))?;
        out.write_all(&piece[text..])?;
    }
    Ok(())
}

const fn paint(kind: FileType) -> (&'static str, &'static str) {
    match kind {
        FileType::Directory => ("\x1b[1;34m", "\x1b[0m"),
        FileType::Symlink => ("\x1b[36m", "\x1b[0m"),
        FileType::File => ("", ""),
        FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
            ("\x1b[33m", "\x1b[0m")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printer_keeps_its_layout_and_names_lose_their_effect() {
        let mut out = Vec::new();
        write_printed(&mut out, "\tname \u{1b}[2J\u{fc}\n\n\tlast \u{7}".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\tname \\u{1b}[2J\u{fc}\n\n\tlast \\u{7}");
    }
}
