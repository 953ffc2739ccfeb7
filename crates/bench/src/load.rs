//! A load file of dbench: recorded requests of a client of a file server, one a line.
//!
//! ```text
//! NTCreateX "\clients\client1\file" OPTIONS DISPOSITION HANDLE STATUS
//! WriteX HANDLE OFFSET BYTES BYTES STATUS
//! ```
//! The status is the server's answer: a replay must get the same.

use anyhow::{Context, Result, bail};

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Opens a directory, and makes it if it does not exist.
    OpenDir {
        path: String,
        handle: u32,
    },
    Open {
        path: String,
        create: bool,
        truncate: bool,
        handle: u32,
    },
    Close(u32),
    Read {
        handle: u32,
        offset: u64,
        len: usize,
    },
    Write {
        handle: u32,
        offset: u64,
        len: usize,
    },
    Flush(u32),
    Rename {
        from: String,
        to: String,
    },
    Unlink(String),
    RemoveTree(String),
    MakeDir(String),
    /// The attributes of a name.
    Stat(String),
    /// The attributes of an open file.
    StatOpen(u32),
    /// The space of the filesystem.
    Space,
    Touch(u32),
    List(String),
}

/// A request, and whether it succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recorded {
    pub(crate) request: Request,
    pub(crate) goes_well: bool,
}

impl Request {
    /// The name of the request in the load file.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::OpenDir { .. } | Self::Open { .. } => "NTCreateX",
            Self::Close(_) => "Close",
            Self::Read { .. } => "ReadX",
            Self::Write { .. } => "WriteX",
            Self::Flush(_) => "Flush",
            Self::Rename { .. } => "Rename",
            Self::Unlink(_) => "Unlink",
            Self::RemoveTree(_) => "Deltree",
            Self::MakeDir(_) => "Mkdir",
            Self::Stat(_) => "QUERY_PATH_INFORMATION",
            Self::StatOpen(_) => "QUERY_FILE_INFORMATION",
            Self::Space => "QUERY_FS_INFORMATION",
            Self::Touch(_) => "SET_FILE_INFORMATION",
            Self::List(_) => "FIND_FIRST",
        }
    }
}

/// Parses a load file. Omits locks of byte ranges, which do not concern a filesystem.
/// Errors: a line is unknown.
pub(crate) fn parse(text: &str) -> Result<Vec<Recorded>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let all = lines.map(|(number, line)| self::line(line).with_context(|| format!("line {number}: {line}")));
    all.filter_map(Result::transpose).collect()
}

fn line(line: &str) -> Result<Option<Recorded>> {
    let mut words = LineRest(line.trim());
    let name = words.word()?;
    let request = match name {
        "NTCreateX" => {
            let (path, options, disposition, handle) =
                (words.path()?, words.number()?, words.number()?, words.number()?);
            let handle = u32::try_from(handle)?;
            match options & 1 {
                1 => Request::OpenDir { path, handle },
                _ => {
                    let (create, truncate) = (matches!(disposition, 2 | 3 | 5), matches!(disposition, 4 | 5));
                    Request::Open { path, create, truncate, handle }
                }
            }
        }
        "Close" => Request::Close(words.handle()?),
        "ReadX" => {
            let (handle, offset, len) = words.range()?;
            Request::Read { handle, offset, len }
        }
        "WriteX" => {
            let (handle, offset, len) = words.range()?;
            Request::Write { handle, offset, len }
        }
        "Flush" => Request::Flush(words.handle()?),
        "Rename" => Request::Rename { from: words.path()?, to: words.path()? },
        "Unlink" => Request::Unlink(words.path()?),
        "Deltree" => Request::RemoveTree(words.path()?),
        "Mkdir" => Request::MakeDir(words.path()?),
        "QUERY_PATH_INFORMATION" => Request::Stat(words.path()?),
        "QUERY_FILE_INFORMATION" => Request::StatOpen(words.handle()?),
        "QUERY_FS_INFORMATION" => Request::Space,
        "SET_FILE_INFORMATION" => Request::Touch(words.handle()?),
        "FIND_FIRST" => {
            let pattern = words.path()?;
            let (dir, _) = pattern.rsplit_once('/').context("a pattern in a directory")?;
            Request::List(dir.to_owned())
        }
        "LockX" | "UnlockX" => return Ok(None),
        _ => bail!("an unknown request"),
    };
    let goes_well = match line.split_whitespace().last() {
        // A directory can be listed, whether a name in it matches or not.
        Some("NT_STATUS_OK" | "NT_STATUS_NO_SUCH_FILE") => true,
        Some(status) if status.starts_with("NT_STATUS_") => false,
        _ => bail!("no status"),
    };
    Ok(Some(Recorded { request, goes_well }))
}

/// The rest of a line.
struct LineRest<'l>(&'l str);

impl<'l> LineRest<'l> {
    fn word(&mut self) -> Result<&'l str> {
        let (word, rest) = self.0.split_once(char::is_whitespace).unwrap_or((self.0, ""));
        self.0 = rest.trim_start();
        if word.is_empty() { bail!("it ends too early") } else { Ok(word) }
    }

    /// A quoted path, turned into a relative path with slashes.
    fn path(&mut self) -> Result<String> {
        let rest = self.0.strip_prefix('"').context("no path")?;
        let (path, rest) = rest.split_once('"').context("a path without an end")?;
        self.0 = rest.trim_start();
        Ok(path.trim_start_matches('\\').replace('\\', "/"))
    }

    fn number(&mut self) -> Result<u64> {
        let word = self.word()?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        number.with_context(|| format!("{word} is no number"))
    }

    fn handle(&mut self) -> Result<u32> {
        Ok(u32::try_from(self.number()?)?)
    }

    fn range(&mut self) -> Result<(u32, u64, usize)> {
        Ok((self.handle()?, self.number()?, usize::try_from(self.number()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> (Request, bool) {
        let mut all = parse(line).expect("a known line");
        let recorded = all.pop().expect("a request");
        assert!(all.is_empty());
        (recorded.request, recorded.goes_well)
    }

    #[test]
    fn lines_are_requests() {
        let (path, handle) = ("clients/client1/a b".to_owned(), 7);
        let open = |create, truncate| Request::Open { path: path.clone(), create, truncate, handle };
        let name = r#""\clients\client1\a b""#;
        for (line, wanted, goes_well) in [
            (format!("NTCreateX {name} 0x40 0x1 7 NT_STATUS_OK"), open(false, false), true),
            (
                format!("NTCreateX {name} 0x40 0x1 7 NT_STATUS_OBJECT_NAME_NOT_FOUND"),
                open(false, false),
                false,
            ),
            (format!("NTCreateX {name} 0x40 0x2 7 NT_STATUS_OK"), open(true, false), true),
            (format!("NTCreateX {name} 0x40 0x5 7 NT_STATUS_OK"), open(true, true), true),
            (
                format!("NTCreateX {name} 0x1 0x2 7 NT_STATUS_OK"),
                Request::OpenDir { path: path.clone(), handle },
                true,
            ),
            (
                "WriteX 7 65534 1 1 NT_STATUS_OK".into(),
                Request::Write { handle, offset: 65534, len: 1 },
                true,
            ),
            (
                format!("FIND_FIRST {name} 260 1366 0 NT_STATUS_NO_SUCH_FILE"),
                Request::List("clients/client1".into()),
                true,
            ),
            (
                format!("Rename {name} {name} NT_STATUS_OK"),
                Request::Rename { from: path.clone(), to: path.clone() },
                true,
            ),
        ] {
            assert_eq!(one(&line), (wanted, goes_well), "{line}");
        }
        assert_eq!(parse("\nLockX 7 2147483538 1 NT_STATUS_OK\n").expect("a known line"), []);
    }

    #[test]
    fn what_is_no_request_is_told_with_its_line() {
        for line in ["Dance 1 NT_STATUS_OK", "Close NT_STATUS_OK", "Close 1", "Unlink x NT_STATUS_OK"] {
            let told = format!("{:#}", parse(&format!("Close 1 NT_STATUS_OK\n{line}")).expect_err(line));
            assert!(told.starts_with("line 2: "), "{told}");
        }
    }
}
