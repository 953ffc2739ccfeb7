//! The small language of the cases: steps, one a line, that are done to a filesystem.
//!
//! A size is a sum of products such as `3*4K+100`. A line `for 1 9: create a%` stands for nine, with the number in place of `%`.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{ErrorKind, InodeId, TreeId, Wait};
use creamery_fs::{
    DeviceNumber, Fallocate, Filesystem, InodeFlags, NewInode, NewKind, OpenFile, RenameMode, SetAttributes,
    XattrMode,
};

/// The lines of a text, with what is to be repeated written out.
pub(crate) fn lines(text: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for line in text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty()) {
        let Some(repeated) = line.strip_prefix("for ") else {
            all.push(line.to_owned());
            continue;
        };
        let (bounds, body) = repeated.split_once(':').with_context(|| line.to_owned())?;
        let (first, last) = bounds.split_once(' ').with_context(|| line.to_owned())?;
        let numbers = first.parse::<u64>()?..=last.parse()?;
        all.extend(numbers.map(|number| body.trim().replace('%', &number.to_string())));
    }
    Ok(all)
}

/// A size.
pub(crate) fn size(text: &str) -> Result<u64> {
    let factor = |word: &str| -> Result<u64> {
        let (digits, unit) = match word.as_bytes().last() {
            Some(b'K') => (&word[..word.len() - 1], 1 << 10),
            Some(b'M') => (&word[..word.len() - 1], 1 << 20),
            _ => (word, 1),
        };
        Ok(digits.parse::<u64>().with_context(|| format!("the size {text}"))? * unit)
    };
    text.split('+').map(|product| product.split('*').map(factor).product::<Result<u64>>()).sum()
}

/// A value: itself, or `x*9` for nine times the same.
pub(crate) fn value(text: &str) -> Result<Vec<u8>> {
    Ok(match text.split_once('*') {
        Some((part, times)) => part.repeat(times.parse()?).into_bytes(),
        None => text.as_bytes().to_vec(),
    })
}

/// Data in runs, such as `8K:aa 100:00`.
pub(crate) fn runs(words: &[&str]) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    for run in words {
        let (len, byte) = run.split_once(':').with_context(|| format!("the run {run}"))?;
        data.resize(data.len() + usize::try_from(size(len)?)?, u8::from_str_radix(byte, 16)?);
    }
    Ok(data)
}

/// A filesystem in the midst of being changed.
pub(crate) struct ScriptScene {
    pub(crate) fs: Arc<Filesystem>,
    /// By the path that they were opened with.
    open: HashMap<String, Arc<OpenFile>>,
}

pub(crate) fn resolve(fs: &Filesystem, path: &str) -> Result<InodeId> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let found = names
        .into_iter()
        .try_fold(fs.root(TreeId::FS)?, |dir, name| fs.lookup(dir, name.as_bytes(), Wait::Yes));
    found.with_context(|| path.to_owned())
}

impl ScriptScene {
    pub(crate) fn new(fs: &Arc<Filesystem>) -> Self {
        Self { fs: Arc::clone(fs), open: HashMap::new() }
    }

    pub(crate) fn run(&mut self, steps: &str) -> Result<()> {
        lines(steps)?.iter().try_for_each(|line| self.step(line).with_context(|| line.clone()))
    }

    fn step(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !self.names(&words)? && !self.data(&words)? && !self.attributes(&words)? {
            bail!("no step of the language");
        }
        Ok(())
    }

    /// Whether a subvolume begins there.
    pub(crate) fn is_subvolume(&self, path: &str) -> Result<bool> {
        let (dir, _) = self.place(path)?;
        Ok(self.at(path)?.subvolume != dir.subvolume)
    }

    fn at(&self, path: &str) -> Result<InodeId> {
        resolve(&self.fs, path)
    }

    fn place<'p>(&self, path: &'p str) -> Result<(InodeId, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.at(dir)?, name.as_bytes()))
    }

    fn file(&self, path: &str) -> Result<Arc<OpenFile>> {
        match self.open.get(path) {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(self.fs.open_file(self.at(path)?)?),
        }
    }

    fn make(&self, path: &str, kind: NewKind<'_>) -> Result<()> {
        let (dir, name) = self.place(path)?;
        self.fs.create(dir, name, &NewInode { kind, ..NewInode::file(0o644) })?;
        Ok(())
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let ((dir, name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        self.fs.rename(dir, name, to_dir, to_name, mode)?;
        Ok(())
    }

    /// What makes, moves and removes names.
    fn names(&mut self, words: &[&str]) -> Result<bool> {
        let fs = &self.fs;
        match *words {
            ["mkdir", path] => {
                let (dir, name) = self.place(path)?;
                fs.create(dir, name, &NewInode::directory(0o755))?;
            }
            ["create", path] => self.make(path, NewKind::File)?,
            ["symlink", path, target] => self.make(path, NewKind::Symlink(target.as_bytes()))?,
            ["fifo", path] => self.make(path, NewKind::Fifo)?,
            ["chardev", path] => self.make(path, NewKind::CharDevice(DeviceNumber { major: 0, minor: 0 }))?,
            ["link", target, path] => {
                let (dir, name) = self.place(path)?;
                fs.link(self.at(target)?, dir, name)?;
            }
            ["rename", from, to] => self.rename(from, to, RenameMode::Replace)?,
            ["exchange", from, to] => self.rename(from, to, RenameMode::Exchange)?,
            ["whiteout", from, to] => self.rename(from, to, RenameMode::Whiteout)?,
            ["unlink", path] => self.place(path).and_then(|(dir, name)| Ok(fs.unlink(dir, name)?))?,
            ["rmdir", path] => self.place(path).and_then(|(dir, name)| Ok(fs.rmdir(dir, name)?))?,
            ["subvolume", path] => {
                let (dir, name) = self.place(path)?;
                fs.create_subvolume(dir, name, &NewInode::directory(0o755))?;
            }
            ["snapshot", path] => {
                let (dir, name) = self.place(path)?;
                fs.create_snapshot(TreeId::FS, dir, name, false)?;
            }
            ["delete-subvolume", path] => {
                let (dir, name) = self.place(path)?;
                fs.delete_subvolume(dir, name)?;
            }
            ["open", path] => {
                let file = fs.open_file(self.at(path)?)?;
                self.open.insert(path.to_owned(), file);
            }
            ["tmpfile", handle] => {
                let (_, file) = fs.tmpfile(self.at("")?, &NewInode::file(0o600))?;
                self.open.insert(handle.to_owned(), file);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What changes and syncs data.
    fn data(&self, words: &[&str]) -> Result<bool> {
        match *words {
            ["write", path, at, len, byte] => {
                let data = runs(&[&format!("{len}:{byte}")])?;
                let written = self.file(path)?.write_at(size(at)?, &data)?;
                ensure!(written == data.len(), "{written} bytes were written");
            }
            ["fill", path] => self.fill(path)?,
            ["truncate", path, to] => {
                self.fs.set_attributes(self.at(path)?, &SetAttributes::truncate(size(to)?))?;
            }
            ["allocate", path, at, len] => {
                self.fallocate(path, at, len, Fallocate::Allocate { keep_size: false })?
            }
            ["allocate-keep", path, at, len] => {
                self.fallocate(path, at, len, Fallocate::Allocate { keep_size: true })?;
            }
            ["punch", path, at, len] => self.fallocate(path, at, len, Fallocate::PunchHole)?,
            ["clone", source, at, len, path, to] => {
                self.file(path)?.clone_range(&*self.file(source)?, size(at)?, size(len)?, size(to)?)?;
            }
            ["fsync", path] => self.file(path)?.sync()?,
            ["sync"] => self.fs.sync()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fallocate(&self, path: &str, at: &str, len: &str, mode: Fallocate) -> Result<()> {
        Ok(self.file(path)?.fallocate(mode, size(at)?, size(len)?)?)
    }

    /// Takes space for data until there is none.
    fn fill(&self, path: &str) -> Result<()> {
        let (file, mut at) = (self.file(path)?, 0);
        for len in [1 << 20, 64 << 10, 4 << 10] {
            loop {
                match file.fallocate(Fallocate::Allocate { keep_size: true }, at, len) {
                    Ok(()) => at += len,
                    Err(error) if error.kind() == ErrorKind::NoSpace => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn attributes(&self, words: &[&str]) -> Result<bool> {
        let (fs, id) = (&self.fs, words.get(1).map(|path| self.at(path)));
        let set = |set: SetAttributes| -> Result<()> {
            fs.set_attributes(self.at(words[1])?, &set)?;
            Ok(())
        };
        match (words, id) {
            (["set", _, name, text], Some(id)) => {
                fs.set_xattr(id?, name.as_bytes(), &value(text)?, XattrMode::Any)?;
            }
            (["unset", _, name], Some(id)) => fs.remove_xattr(id?, name.as_bytes())?,
            (["chmod", _, mode], _) => {
                set(SetAttributes { mode: Some(u32::from_str_radix(mode, 8)?), ..Default::default() })?;
            }
            (["in-place", _], _) => {
                set(SetAttributes { flags: Some(InodeFlags::NODATACOW), ..Default::default() })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
