//! Another filesystem, or another place in the same one, as the destination of a copy.

use std::cell::RefCell;
use std::collections::HashMap;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::copy::Reflink;
use crate::fs::{self, Inherit, NewInode, NewKind, Replacing, SetAttributes, Time, Times, XattrMode};
use crate::salvage::Data;
use crate::sink::{Sink, Source};

/// Another filesystem as the destination of a copy.
pub(crate) struct ImageSink<'a> {
    to: &'a fs::Filesystem,
    archive: bool,
    reflink: Reflink,
    /// Copies whose other names are still to come, and how many.
    links: HashMap<InodeId, (InodeId, u32)>,
    /// Extended attributes that the last copy did not get.
    left_out: RefCell<Vec<(Vec<u8>, Error)>>,
}

impl<'a> ImageSink<'a> {
    pub(crate) fn new(to: &'a fs::Filesystem, archive: bool, reflink: Reflink) -> Self {
        Self { to, archive, reflink, links: HashMap::new(), left_out: RefCell::default() }
    }

    /// Makes a copy of `source` without its data, in place of an existing file with that name.
    fn create(
        &self,
        dir: InodeId,
        name: &[u8],
        source: &Source,
        kind: NewKind<'_>,
    ) -> Result<(InodeId, Replacing<'a>)> {
        let attributes = &source.attributes;
        let now = self.to.engine().env().now();
        let xattrs = self.xattrs_with_room(source)?;
        let new = NewInode {
            kind,
            // Without the source's owner, set-user-ID and set-group-ID would give the new owner's rights.
            mode: attributes.mode & if self.archive { 0o7777 } else { 0o777 },
            umask: 0,
            uid: if self.archive { attributes.uid } else { 0 },
            gid: if self.archive { attributes.gid } else { 0 },
            times: Some(Times { change: now, birth: now, ..self.times(attributes) }),
            xattrs: &xattrs,
            inherit: if self.archive { Inherit::OnlyFlags } else { Inherit::FromDirectory },
        };
        // Shared data takes no space.
        let bytes = if self.reflink == Reflink::Never { attributes.size } else { 0 };
        let (made, replacing) =
            self.to.make_or_replace(dir, name, bytes, |name| self.to.create(dir, name, &new))?;
        if attributes.kind == fs::FileType::File && !self.archive {
            replacing.begin_as_the_old(made.id)?;
        }
        Ok((made.id, replacing))
    }

    /// Returns the extended attributes that fit. Each must fit in one leaf, and leaves may be smaller here than in the source. An attribute
    /// that does not fit does not keep the file from being copied.
    fn xattrs_with_room<'s>(&self, source: &'s Source) -> Result<Vec<(&'s [u8], &'s [u8])>> {
        let mut left_out = self.left_out.borrow_mut();
        left_out.clear();
        let mut taken = Vec::with_capacity(source.xattrs.len());
        for (name, value) in &source.xattrs {
            let most = self.to.xattr_value_max(name)?;
            if value.len() <= most {
                taken.push((&name[..], &value[..]));
                continue;
            }
            let what = format!("it has {} bytes, expected at most {most}", value.len());
            left_out.push((name.clone(), Error::new(ErrorKind::NoSpace, what)));
        }
        Ok(taken)
    }

    /// Gives a copy its name. From now on the other names of its source can link to it; before that it was not whole.
    fn finish(&mut self, id: InodeId, replacing: Replacing<'_>, source: &Source) -> Result<()> {
        match source.attributes.kind {
            fs::FileType::File if !self.archive => replacing.finish_as_the_old(id)?,
            _ => replacing.finish()?,
        }
        let attributes = &source.attributes;
        if self.archive && attributes.nlink > 1 {
            self.links.insert(attributes.id, (id, attributes.nlink - 1));
        }
        Ok(())
    }

    /// Enters a directory, or makes it.
    fn create_directory(&self, dir: InodeId, name: &[u8], source: &Source) -> Result<InodeId> {
        match self.to.lookup_kind(dir, name, Wait::Yes) {
            Ok((there, fs::FileType::Directory)) => return Ok(there),
            Ok(_) => {
                let what = "cannot replace it with a directory";
                return Err(Error::new(ErrorKind::AlreadyExists, what));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (id, replacing) = self.create(dir, name, source, NewKind::Directory)?;
        replacing.finish()?;
        Ok(id)
    }

    fn times(&self, attributes: &fs::Attributes) -> Times {
        if self.archive { attributes.times } else { Times::all(self.to.engine().env().now()) }
    }

    /// Returns the change that restores the times which writing has moved.
    fn restore(&self, source: &Source) -> SetAttributes {
        let times = self.times(&source.attributes);
        SetAttributes {
            atime: Some(Time::At(times.access)),
            mtime: Some(Time::At(times.modification)),
            ..SetAttributes::default()
        }
    }

    /// Rejects, before anything is made, a copy that must share data and cannot.
    fn check_shares(&self, dir: InodeId, source: &Source) -> Result<()> {
        let attributes = &source.attributes;
        if self.reflink != Reflink::Always || attributes.size == 0 {
            return Ok(());
        }
        if self.to.new_file_has_checksums(dir)? == attributes.flags.contains(fs::InodeFlags::NODATASUM) {
            return Err(Error::invalid("data cannot be shared: only one of the files has checksums"));
        }
        Ok(())
    }

    /// Gives the empty copy `id` the data of its source, shared or written.
    fn fill(&self, id: InodeId, source: &Source, data: &Data<'_>) -> Result<()> {
        let size = source.attributes.size;
        let file = self.to.open_file(id)?;
        if self.reflink != Reflink::Never {
            match data.file.clone_to(&file) {
                // Only one of the files has checksums.
                Err(error) if error.kind() == ErrorKind::InvalidInput && self.reflink == Reflink::Auto => {}
                cloned => {
                    cloned?;
                    return self.to.set_attributes(id, &self.restore(source)).map(drop);
                }
            }
        }
        let mut end = 0;
        data.for_each_piece(|at, bytes| {
            let mut done = 0;
            while done < bytes.len() {
                done += file.write_at(at + done as u64, &bytes[done..])?;
            }
            end = at + bytes.len() as u64;
            Ok(())
        })?;
        let size = (end < size).then_some(size);
        self.to.set_attributes(id, &SetAttributes { size, ..self.restore(source) }).map(drop)
    }
}

impl Sink for ImageSink<'_> {
    type Dir = InodeId;

    fn enter(&mut self, parent: &InodeId, name: &[u8], source: &Source) -> Result<InodeId> {
        self.create_directory(*parent, name, source)
    }

    fn leave(&mut self, dir: InodeId, source: &Source) -> Result<()> {
        if !self.archive {
            return Ok(());
        }
        // An existing directory gets everything; of a new one only the times have changed.
        for (name, value) in self.xattrs_with_room(source)? {
            self.to.set_xattr(dir, name, value, XattrMode::Any)?;
        }
        let attributes = &source.attributes;
        let set = SetAttributes {
            mode: Some(attributes.mode & 0o7777),
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            ..self.restore(source)
        };
        self.to.set_attributes(dir, &set).map(drop)
    }

    fn file(&mut self, parent: &InodeId, name: &[u8], source: &Source, data: &Data<'_>) -> Result<()> {
        self.check_shares(*parent, source)?;
        let (id, replacing) = self.create(*parent, name, source, NewKind::File)?;
        if source.attributes.size > 0 {
            self.fill(id, source, data)?;
        }
        self.finish(id, replacing, source)
    }

    fn node(&mut self, parent: &InodeId, name: &[u8], source: &Source) -> Result<()> {
        let device = source.attributes.device;
        let kind = match source.attributes.kind {
            fs::FileType::Symlink => NewKind::Symlink(&source.target),
            fs::FileType::Fifo => NewKind::Fifo,
            fs::FileType::Socket => NewKind::Socket,
            fs::FileType::CharDevice => NewKind::CharDevice(device),
            fs::FileType::BlockDevice => NewKind::BlockDevice(device),
            _ => return Err(Error::unsupported("unknown file type")),
        };
        let (id, replacing) = self.create(*parent, name, source, kind)?;
        self.finish(id, replacing, source)
    }

    fn take_left_out(&mut self) -> Vec<(Vec<u8>, Error)> {
        self.left_out.take()
    }

    fn link(&mut self, parent: &InodeId, name: &[u8], source: &Source) -> Result<bool> {
        self.left_out.take();
        let key = source.attributes.id;
        let Some((id, left)) = self.links.get_mut(&key) else { return Ok(false) };
        let id = *id;
        if !self.to.lookup(*parent, name, Wait::Yes).is_ok_and(|there| there == id) {
            let link = |name: &[u8]| self.to.link(id, *parent, name);
            let (_, replacing) = self.to.make_or_replace(*parent, name, 0, link)?;
            replacing.finish()?;
        }
        *left -= 1;
        if *left == 0 {
            self.links.remove(&key);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;
    use crate::salvage::Salvage;
    use crate::{Image, OpenOptions};

    #[test]
    fn no_name_is_given_to_a_copy_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        Image::make(&image).size(128 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.write("/file", "from the image").unwrap();
        fs.hard_link("/file", "/again").unwrap();
        fs.create_dir("/to").unwrap();
        let resolve = |path: &str| fs.resolve(path.as_ref(), crate::path::Last::Keep).unwrap();
        let attributes = fs.fs.stat(resolve("/file"), Wait::Yes).unwrap();
        let source = Source { attributes, xattrs: Vec::new(), target: Vec::new() };
        let (salvage, to) = (Salvage::new(crate::progress::OnError::Stop, &NoProgress), resolve("/to"));
        let mut sink = ImageSink::new(&fs.fs, true, Reflink::Never);
        let mut copy = |file: &crate::File| {
            let data = Data { file, path: "/file".as_ref(), size: source.attributes.size, salvage: &salvage };
            let copied = sink.file(&to, b"first", &source, &data);
            (copied, sink.link(&to, b"second", &source))
        };
        let unreadable = OpenOptions::new().write(true).open(&fs, "/file").unwrap();
        let (copied, linked) = copy(&unreadable);
        copied.unwrap_err();
        assert!(!linked.unwrap() && fs.read_dir("/to").unwrap().next().is_none());
        let (copied, linked) = copy(&fs.open("/file").unwrap());
        copied.unwrap();
        assert!(linked.unwrap() && fs.read("/to/second").unwrap() == b"from the image");
    }
}
