//! The controls of Linux' Btrfs that a FUSE server can answer: those whose whole argument is in the bytes that their numbers announce
//! (linux/btrfs.h). Their meaning, the rights that they need and their answers are those of Linux. The mounter may do here
//! everything that root may do there.
//!
//! A snapshot request contains a descriptor of the caller's, which no other process can use. So it is refused, and the log says
//! once which command to use instead.
//!
//! `BTRFS_IOC_FS_INFO` returns the original fields: a server does not see which of the newer fields the caller wants.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use creamery_base::{DevId, InodeId, ObjectId, Timespec, TreeId, Uuid};
use creamery_fs::{FoundItem, SearchKey, SubvolumeInfo};
use creamery_fuse::{Errno, IoctlReply};
use creamery_txn::DeviceReport;

use super::server::{Result, Server};
use crate::asker::Asker;
use crate::messages::{
    self, DEV_STATS, DEV_STATS_COUNTS, DEV_STATS_RESET, DEVICE_PATH, LOOKUP_PATH, RECEIVED, RECEIVED_TIME,
    RECEIVED_TRANSID, SEARCH_HEADER, SEARCH_KEY,
};

/// Bytes of `struct btrfs_ioctl_vol_args` and of structures of the same length.
const ARGS: usize = 4096;
/// `_IOW(0x94, NUMBER, struct btrfs_ioctl_vol_args)`, and of its second version.
const fn of_args(number: u32) -> u32 {
    0x5000_9400 | number
}

const SNAP_CREATE: u32 = of_args(1);
const SNAP_CREATE_V2: u32 = of_args(23);
const SUBVOL_CREATE: u32 = of_args(14);
const SUBVOL_CREATE_V2: u32 = of_args(24);
const SNAP_DESTROY: u32 = of_args(15);
const SNAP_DESTROY_V2: u32 = of_args(63);
const TREE_SEARCH: u32 = 0xd000_9411;
const INO_LOOKUP: u32 = 0xd000_9412;
const DEFAULT_SUBVOL: u32 = 0x4008_9413;
const SUBVOL_GETFLAGS: u32 = 0x8008_9419;
const SUBVOL_SETFLAGS: u32 = 0x4008_941a;
const SET_RECEIVED_SUBVOL: u32 = 0xc0c8_9425;
const FS_INFO: u32 = 0x8400_941f;
const DEV_INFO: u32 = 0xd000_941e;
const GET_DEV_STATS: u32 = 0xc408_9434;
const GET_SUBVOL_INFO: u32 = 0x81f8_943c;

/// The offset of the name in both versions of the arguments, of the flags in the second, the length of its
/// `struct btrfs_qgroup_inherit`, and its number of a subvolume.
const NAME: usize = 8;
const FLAGS_V2: usize = 16;
const INHERIT_LEN_V2: usize = 24;
const NAME_V2: usize = 56;
/// `BTRFS_SUBVOL_SPEC_BY_ID`: a number instead of a name.
const BY_ID: u64 = 1 << 4;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1 << 1;
/// `BTRFS_SUBVOL_QGROUP_INHERIT`: in quota groups, which are behind a pointer; their length is one of `INHERIT_LENS`, bytes.
const QGROUP_INHERIT: u64 = 1 << 2;
const INHERIT_LENS: std::ops::RangeInclusive<u64> = 72..=4096;

impl Server<'_> {
    /// Answers a control of Linux' that the thread `asker` sent to the inode `at`; `None` if it is not one of these.
    pub(crate) fn answer_of_linux(
        &self,
        command: u32,
        asker: u32,
        at: InodeId,
        input: &[u8],
        output: &mut [u8],
    ) -> Option<creamery_fuse::Result<IoctlReply>> {
        let asker = || Asker::of(asker);
        let answered = match command {
            SUBVOL_CREATE => self.create_named(&asker(), at, input, NAME),
            SUBVOL_CREATE_V2 => self.create_v2(&asker(), at, input),
            SNAP_DESTROY => self.destroy(&asker(), at, input),
            SNAP_DESTROY_V2 => self.destroy_v2(&asker(), at, input),
            SNAP_CREATE | SNAP_CREATE_V2 => self.refuse_snapshot(),
            DEFAULT_SUBVOL => self.default_by_number(&asker(), at, input),
            SUBVOL_GETFLAGS => self.flags(at),
            SUBVOL_SETFLAGS => self.set_flags(&asker(), at, input),
            GET_SUBVOL_INFO => self.subvolume_info(at),
            SET_RECEIVED_SUBVOL => self.set_received(&asker(), at, input),
            INO_LOOKUP => self.path_of(&asker(), at, input),
            FS_INFO => Ok(self.filesystem_info()),
            DEV_INFO => self.device_info(input),
            GET_DEV_STATS => self.device_errors(&asker(), at, input),
            TREE_SEARCH => self.search(&asker(), at, input),
            _ => return None,
        };
        Some(answered.map_err(Errno::from).and_then(|answer| put(&answer, output)))
    }

    fn create_named(&self, asker: &Asker, dir: InodeId, input: &[u8], name: usize) -> Result<Vec<u8>> {
        self.create(asker, dir, name_in(input, name)?, &[])?;
        self.state.told.wait();
        Ok(Vec::new())
    }

    fn create_v2(&self, asker: &Asker, dir: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let flags = number(input, FLAGS_V2)?;
        let inherits = flags & QGROUP_INHERIT != 0;
        if flags & !(READ_ONLY | QGROUP_INHERIT) == 0
            && inherits
            && !INHERIT_LENS.contains(&number(input, INHERIT_LEN_V2)?)
        {
            return Err(Errno::EINVAL.into());
        }
        // A server cannot read data behind a pointer of the caller's.
        if flags & !READ_ONLY != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        // Linux 6.18 accepts `READ_ONLY`, and makes a writable subvolume.
        self.create_named(asker, dir, input, NAME_V2)
    }

    fn destroy(&self, asker: &Asker, dir: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let name = name_to_delete(input, NAME)?;
        self.delete(&self.may_write(asker, dir)?, asker, dir, name)?;
        self.state.told.wait();
        Ok(Vec::new())
    }

    fn destroy_v2(&self, asker: &Asker, dir: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        match number(input, FLAGS_V2)? {
            0 => {
                let name = name_to_delete(input, NAME_V2)?;
                self.delete(&self.may_write(asker, dir)?, asker, dir, name)?
            }
            BY_ID => self.delete_by_id(asker, dir, TreeId::new(number(input, NAME_V2)?))?,
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        self.state.told.wait();
        Ok(Vec::new())
    }

    /// Deletes a subvolume by its number, for administrators only; errors come in the order in which Linux checks.
    fn delete_by_id(&self, asker: &Asker, at: InodeId, id: TreeId) -> Result<TreeId> {
        if id.objectid() < ObjectId::FIRST_FREE {
            return Err(Errno::EINVAL.into());
        }
        let right = self.may_write(asker, at)?;
        let (dir, name) = self.fs.subvolume_entry(id)?;
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        self.delete(&right, asker, dir, &name)
    }

    fn refuse_snapshot(&self) -> Result<Vec<u8>> {
        if !self.state.has_refused.swap(true, Ordering::Relaxed) {
            self.state.say(
                "refused BTRFS_IOC_SNAP_CREATE: a FUSE server cannot see its source; \
                 use `creamery subvolume snapshot`",
            );
        }
        Err(Errno::EOPNOTSUPP.into())
    }

    fn default_by_number(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        self.set_default(asker, at, Some(number(input, 0)?)).map(|()| Vec::new())
    }

    fn flags(&self, at: InodeId) -> Result<Vec<u8>> {
        if at.ino != ObjectId::FIRST_FREE {
            return Err(Errno::EINVAL.into());
        }
        let read_only = self.fs.subvolume_info(at.subvolume)?.is_read_only();
        Ok(if read_only { READ_ONLY } else { 0 }.to_le_bytes().to_vec())
    }

    fn set_flags(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let flags = number(input, 0)?;
        let _right = self.may_set_read_only(asker, at)?;
        if flags & !READ_ONLY != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.set_read_only(at, flags & READ_ONLY != 0)?;
        Ok(Vec::new())
    }

    /// Clears the received state. Other values are not supported.
    fn set_received(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let _right = self.may_set_read_only(asker, at)?;
        if input.get(..RECEIVED).is_none_or(|args| args.iter().any(|byte| *byte != 0)) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.fs.forget_received(at.subvolume)?;
        let info = self.fs.subvolume_info(at.subvolume)?;
        let mut answer = vec![0; RECEIVED];
        answer[RECEIVED_TRANSID..][..8].copy_from_slice(&info.rtransid.get().to_le_bytes());
        answer[RECEIVED_TIME..][..8].copy_from_slice(&info.rtime.sec.to_le_bytes());
        answer[RECEIVED_TIME + 8..][..4].copy_from_slice(&info.rtime.nsec.to_le_bytes());
        Ok(answer)
    }

    fn subvolume_info(&self, at: InodeId) -> Result<Vec<u8>> {
        let info = self.fs.subvolume_info(at.subvolume)?;
        if info.is_deleted {
            return Err(Errno::ENOENT.into());
        }
        Ok(subvolume_info(&info))
    }

    /// Returns the subvolume of `at`, for every user, and the path of an inode in a subvolume, for administrators only.
    fn path_of(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let (tree, ino) = (number(input, 0)?, number(input, 8)?);
        if !asker.administrates() && ino != ObjectId::FIRST_FREE.get() {
            return Err(Errno::EPERM.into());
        }
        let tree = if tree == 0 { at.subvolume } else { TreeId::new(tree) };
        let id = InodeId::new(tree, ObjectId::new(ino));
        let mut path = match id.ino {
            ObjectId::FIRST_FREE => Vec::new(),
            _ => self.fs.path_in_subvolume(id)?,
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        let mut answer = [tree.get().to_le_bytes(), ino.to_le_bytes()].concat();
        if path.len() >= ARGS - LOOKUP_PATH {
            return Err(Errno::ENAMETOOLONG.into());
        }
        answer.extend(path);
        answer.resize(ARGS, 0);
        Ok(answer)
    }

    fn filesystem_info(&self) -> Vec<u8> {
        let superblock = self.fs.engine().volume().superblock();
        let devices = self.fs.engine().devices();
        let last = devices.iter().map(|device| device.id.get()).max().unwrap_or(0);
        let mut answer = Vec::with_capacity(messages::FS_INFO);
        answer.extend(last.to_le_bytes());
        answer.extend((devices.len() as u64).to_le_bytes());
        answer.extend(superblock.fsid().as_bytes());
        for size in [superblock.node_size(), superblock.sector_size(), superblock.sector_size()] {
            answer.extend(size.to_le_bytes());
        }
        answer.resize(messages::FS_INFO, 0);
        answer
    }

    /// The device with this number, and with this UUID, if one is given.
    fn device_info(&self, input: &[u8]) -> Result<Vec<u8>> {
        let id = number(input, 0)?;
        let uuid = input.get(8..24).ok_or(Errno::EINVAL)?;
        let engine = self.fs.engine();
        let is_it = |device: &DeviceReport| {
            device.id.get() == id && (uuid == [0; 16] || uuid == device.uuid.as_bytes())
        };
        let device = engine.devices().into_iter().find(is_it).ok_or(Errno::ENODEV)?;
        let mut answer = id.to_le_bytes().to_vec();
        answer.extend(device.uuid.as_bytes());
        answer.extend([device.used_bytes, device.total_bytes].iter().flat_map(|bytes| bytes.to_le_bytes()));
        answer.extend(engine.volume().superblock().fsid().as_bytes());
        answer.resize(DEVICE_PATH, 0);
        let path = self.state.path_of(device.id).map(|path| path.as_os_str().as_bytes().to_vec());
        answer.extend(path.unwrap_or_default().into_iter().take(ARGS - DEVICE_PATH - 1));
        answer.resize(ARGS, 0);
        Ok(answer)
    }

    /// The error counters of a device, as many of the five numbers as are wanted. Every user may read them. Setting them to 0 is for the
    /// administrator, and needs a writable mount.
    fn device_errors(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        let (id, wanted, flags) = (DevId::new(number(input, 0)?), number(input, 8)?, number(input, 16)?);
        let resets = flags & DEV_STATS_RESET != 0;
        if resets && !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        if !self.fs.engine().devices().iter().any(|device| device.id == id) {
            return Err(Errno::ENODEV.into());
        }
        let errors = if resets {
            let _right = self.may_write(asker, at)?;
            self.fs.reset_device_errors(id)?
        } else {
            self.fs.device_errors(id)?
        };
        let counts = errors.to_counts();
        let told = wanted.min(counts.len() as u64);
        let mut answer = input.get(..DEV_STATS).ok_or(Errno::EINVAL)?.to_vec();
        answer[8..16].copy_from_slice(&told.to_le_bytes());
        for (place, count) in
            answer[DEV_STATS_COUNTS..].chunks_exact_mut(8).zip(counts).take(low(told) as usize)
        {
            place.copy_from_slice(&count.to_le_bytes());
        }
        Ok(answer)
    }

    fn search(&self, asker: &Asker, at: InodeId, input: &[u8]) -> Result<Vec<u8>> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        let word = |at: usize| number(input, at);
        let types = word(56)?;
        let tree = word(0)?;
        let key = SearchKey {
            tree: TreeId::new(tree),
            objectids: (word(8)?, word(16)?),
            offsets: (word(24)?, word(32)?),
            transids: (word(40)?, word(48)?),
            // Linux ignores the higher bits of a type.
            types: (low(types) & 0xff, low(types >> 32) & 0xff),
        };
        let wanted = low(word(64)?);
        let mut answer = input.get(..SEARCH_KEY).ok_or(Errno::EINVAL)?.to_vec();
        let mut found = 0_u32;
        let mut put = |item: FoundItem<'_>| {
            let room = ARGS - answer.len();
            let whole = SEARCH_HEADER + item.data.len();
            // Like Linux: if an item is too large for the answer, the first version only reports that it exists.
            let data = if whole <= room { item.data } else { &[] };
            if whole > room && found > 0 {
                return std::ops::ControlFlow::Break(());
            }
            answer.extend(SearchHeader::of(&item, data.len()));
            answer.extend(data);
            found += 1;
            // A caller that wants no items gets one, too.
            let is_last = whole > room || found >= wanted;
            if is_last { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        };
        match tree {
            0 => self.fs.tree_search_around(at, &key, &mut put)?,
            _ => self.fs.tree_search(&key, &mut put)?,
        }
        answer[64..68].copy_from_slice(&found.to_le_bytes());
        answer.resize(ARGS, 0);
        Ok(answer)
    }
}

/// `struct btrfs_ioctl_search_header`.
struct SearchHeader;

impl SearchHeader {
    fn of(item: &FoundItem<'_>, len: usize) -> Vec<u8> {
        let len = u32::try_from(len).expect("less than a page");
        let words = [item.transid, item.objectid, item.offset].map(u64::to_le_bytes).concat();
        [&words[..], &item.kind.to_le_bytes(), &len.to_le_bytes()].concat()
    }
}

/// The lower 32 bits.
const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// The number at offset `at` in an argument.
fn number(input: &[u8], at: usize) -> Result<u64> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
    Ok(u64::from_le_bytes(*bytes))
}

/// The name at offset `at`, up to its zero byte. Errors: `ENAMETOOLONG` without a zero byte; `EACCES` for an empty name.
fn name_in(input: &[u8], at: usize) -> Result<&[u8]> {
    let name = input.get(at..).ok_or(Errno::EINVAL)?;
    match name.iter().position(|byte| *byte == 0) {
        None => Err(Errno::ENAMETOOLONG.into()),
        Some(0) => Err(Errno::EACCES.into()),
        Some(len) => Ok(&name[..len]),
    }
}

/// The name of a subvolume to delete. A directory's name for itself is not valid.
fn name_to_delete(input: &[u8], at: usize) -> Result<&[u8]> {
    match name_in(input, at)? {
        b"." => Err(Errno::EACCES.into()),
        name => Ok(name),
    }
}

fn put(answer: &[u8], output: &mut [u8]) -> creamery_fuse::Result<IoctlReply> {
    output.get_mut(..answer.len()).ok_or(Errno::EINVAL)?.copy_from_slice(answer);
    Ok(IoctlReply { result: 0, len: answer.len() })
}

/// `struct btrfs_ioctl_get_subvol_info_args`.
fn subvolume_info(info: &SubvolumeInfo) -> Vec<u8> {
    let mut answer = Vec::with_capacity(messages::SUBVOL_INFO);
    answer.extend(info.id.get().to_le_bytes());
    answer.extend(&info.name);
    answer.resize(264, 0);
    let numbers = [
        info.parent.map_or(0, TreeId::get),
        info.dir.map_or(0, ObjectId::get),
        info.generation.get(),
        info.flags,
    ];
    answer.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    for uuid in [info.uuid, info.parent_uuid, info.received_uuid] {
        answer.extend(uuid.as_ref().map_or([0; 16], |uuid: &Uuid| *uuid.as_bytes()));
    }
    let transids = [info.ctransid, info.otransid, info.stransid, info.rtransid];
    answer.extend(transids.iter().flat_map(|transid| transid.get().to_le_bytes()));
    for Timespec { sec, nsec } in [info.ctime, info.otime, info.stime, info.rtime] {
        answer.extend(sec.to_le_bytes());
        answer.extend(u64::from(nsec).to_le_bytes()); // with padding
    }
    answer.resize(messages::SUBVOL_INFO, 0);
    answer
}
