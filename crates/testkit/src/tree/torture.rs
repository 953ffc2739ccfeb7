//! A small tree with everything that is hard to keep.
//!
//! Hard links until the references need the extended form, names of any bytes, names that collide, holes
//! everywhere, special files, odd modes and owners, times before 1970 and far away, xattrs of every namespace, ACLs,
//! deep folders, one large folder. What only the superuser may make is left out for others.

use std::ffi::OsStr;
use std::fs::{File, Permissions, set_permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat, utimensat,
};
use rustix::io::Errno;

use super::name_hash::colliding_names;
use crate::Random;

const LINKS: usize = 420;
const LARGE_DIR_NAMES: usize = 5_000;
const DEPTH: usize = 60;
const SYMLINK_TARGET_MAX: usize = 4_095;

/// Fills the folder `dir`; `as_root` adds what only the superuser may make.
///
/// ```
/// let scratch = creamery_testkit::Scratch::new("torture").unwrap();
/// creamery_testkit::tree::torture(scratch.path(), false).unwrap();
/// assert!(scratch.file("sizes/4097").exists());
/// ```
///
/// # Errors
/// When the host cannot hold it: names, xattrs and holes need a real Linux filesystem.
pub fn torture(dir: &Path, as_root: bool) -> Result<()> {
    let mut random = Random::new(0x00c0_ffee);
    let parts: [(&str, Part); 13] = [
        ("sizes", sizes),
        ("holes", holes),
        ("links", hard_links),
        ("symlinks", symlinks),
        ("special", special_files),
        ("names", names),
        ("collisions", collisions),
        ("modes", modes),
        ("owners", owners),
        ("xattrs", xattrs),
        ("acls", acls),
        ("deep", deep),
        ("large", large_dir),
    ];
    for (name, fill) in parts {
        let part = dir.join(name);
        std::fs::create_dir(&part).with_context(|| format!("making {}", part.display()))?;
        fill(&part, as_root, &mut random).with_context(|| format!("filling {}", part.display()))?;
    }
    std::fs::create_dir(dir.join("empty-folder"))?;
    // Across folders, both names of one file.
    std::fs::hard_link(dir.join("sizes/4097"), dir.join("links/of-another-folder"))?;
    set_times(dir)
}

type Part = fn(&Path, bool, &mut Random) -> Result<()>;

fn sizes(dir: &Path, _as_root: bool, random: &mut Random) -> Result<()> {
    for size in [
        0,
        1,
        2,
        100,
        2_047,
        2_048,
        2_049,
        3_900,
        4_095,
        4_096,
        4_097,
        8_192,
        16_384,
        65_535,
        65_536,
        65_537,
        131_072,
        (1 << 20) + 1,
        20 << 20,
    ] {
        std::fs::write(dir.join(size.to_string()), random.bytes(size))?;
    }
    std::fs::write(dir.join("zeroes"), vec![0; 200_000])?;
    std::fs::write(dir.join("one-byte-many-times"), vec![b'x'; 200_000])?;
    Ok(())
}

fn holes(dir: &Path, _as_root: bool, random: &mut Random) -> Result<()> {
    let sparse = |name: &str, size: u64, data: &[(u64, usize)], random: &mut Random| -> Result<()> {
        let file = File::create_new(dir.join(name))?;
        for &(at, len) in data {
            file.write_all_at(&random.bytes(len), at)?;
        }
        Ok(file.set_len(size)?)
    };
    sparse("start", (1 << 20) + 4_096, &[(1 << 20, 4_096)], random)?;
    sparse("middle", 300_000, &[(0, 8_192), (262_144, 37_856)], random)?;
    sparse("end", 5_000_000, &[(0, 12_288)], random)?;
    sparse("end-not-aligned", 4_999_999, &[(0, 10_000)], random)?;
    sparse("only", 8 << 20, &[], random)?;
    sparse("only-small", 100, &[], random)?;
    sparse("only-not-aligned", 4_097, &[], random)?;
    sparse("around-inline", 2_000, &[(0, 10)], random)?;
    sparse("large", 1 << 40, &[(0, 4_096), (1 << 39, 4_096)], random)?;
    let comb: Vec<(u64, usize)> = (0..256).map(|tooth| (tooth * 8_192, 4_096)).collect();
    sparse("comb", 256 * 8_192, &comb, random)
}

fn hard_links(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    let first = dir.join("first");
    std::fs::write(&first, b"many names")?;
    let other = dir.join("below");
    std::fs::create_dir(&other)?;
    for index in 0..LINKS {
        let home = if index % 10 == 9 { &other } else { dir };
        std::fs::hard_link(&first, home.join(format!("one-of-many-names-of-the-same-file-{index:04}")))?;
    }
    symlink("first", dir.join("symlink"))?;
    std::fs::hard_link(dir.join("symlink"), dir.join("symlink-again"))?;
    Ok(())
}

fn symlinks(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    symlink("nowhere/at/all", dir.join("dangling"))?;
    symlink("/", dir.join("absolute"))?;
    symlink("..", dir.join("parent"))?;
    symlink(".", dir.join("self"))?;
    symlink("loop", dir.join("loop"))?;
    symlink(OsStr::from_bytes(b"bytes-\xff\xfe\x80-\n"), dir.join("bytes"))?;
    for len in [255, 1_000, 2_047, 2_048, 3_800, SYMLINK_TARGET_MAX] {
        let target: String = "abcdefghi/".chars().cycle().take(len).collect();
        match symlink(&target, dir.join(format!("long-{len}"))) {
            // Btrfs keeps a target inline, so small nodes set a lower limit; the tree may lie on such a host.
            Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {}
            other => other?,
        }
    }
    Ok(())
}

fn special_files(dir: &Path, as_root: bool, _random: &mut Random) -> Result<()> {
    let node = |name: &str, kind, mode, device| mknodat(CWD, dir.join(name), kind, Mode::from(mode), device);
    node("fifo", FileType::Fifo, 0o640, 0)?;
    mknodat(CWD, dir.join("socket"), FileType::Socket, Mode::from(0o600), 0)
        .or_else(|_| UnixListener::bind(dir.join("socket")).map(drop).map_err(|_| Errno::INVAL))?;
    if as_root {
        node("null", FileType::CharacterDevice, 0o666, makedev(1, 3))?;
        node("large-numbers", FileType::CharacterDevice, 0o600, makedev(4_000, 1_000_000))?;
        node("whiteout", FileType::CharacterDevice, 0o000, 0)?;
        node("loop", FileType::BlockDevice, 0o660, makedev(7, 200))?;
    }
    Ok(())
}

fn names(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    let long = |byte: u8, len: usize| vec![byte; len];
    let names: Vec<Vec<u8>> = vec![
        b" ".to_vec(),
        b"\n".to_vec(),
        b"new\nline".to_vec(),
        b"tab\tand\\backslash".to_vec(),
        b"-rf".to_vec(),
        b"...".to_vec(),
        b"trailing ".to_vec(),
        b"*?[a]{b}$(c)`d`'\"".to_vec(),
        b"\x01\x02\x7f".to_vec(),
        b"\xff".to_vec(),
        b"not-utf8-\xc3\x28-\xfe".to_vec(),
        "caf\u{e9}".as_bytes().to_vec(),
        "cafe\u{301}".as_bytes().to_vec(),
        "\u{6587}\u{4ef6}".as_bytes().to_vec(),
        long(b'n', 254),
        long(b'm', 255),
        long(0xfe, 255),
        b"UPPER".to_vec(),
        b"upper".to_vec(),
    ];
    for name in &names {
        std::fs::write(dir.join(OsStr::from_bytes(name)), name)?;
    }
    let folder = dir.join(OsStr::from_bytes(&long(0x80, 255)));
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("inside"), b"inside")?;
    let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    std::fs::write(dir.join(OsStr::from_bytes(&all)), b"all bytes")?;
    Ok(())
}

fn collisions(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    let names = colliding_names(24);
    for (index, name) in names.iter().enumerate() {
        let path = dir.join(OsStr::from_bytes(name));
        match index % 3 {
            0 => std::fs::write(path, name)?,
            1 => std::fs::create_dir(path)?,
            _ => symlink(OsStr::from_bytes(&names[0]), path)?,
        }
    }
    Ok(())
}

fn modes(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    for mode in [0o400, 0o444, 0o600, 0o644, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o6711, 0o7777] {
        let file = dir.join(format!("file-{mode:04o}"));
        std::fs::write(&file, b"mode")?;
        set_permissions(&file, Permissions::from_mode(mode))?;
        let folder = dir.join(format!("folder-{mode:04o}"));
        std::fs::create_dir(&folder)?;
        set_permissions(&folder, Permissions::from_mode(mode | 0o500))?;
    }
    Ok(())
}

fn owners(dir: &Path, as_root: bool, _random: &mut Random) -> Result<()> {
    for (uid, gid) in [(0, 0), (1, 2), (1_000, 1_000), (65_534, 65_534), (70_000, 80_000), (4_294_967_294, 5)]
    {
        let file = dir.join(format!("{uid}-{gid}"));
        std::fs::write(&file, b"owner")?;
        symlink("nowhere", dir.join(format!("symlink-{uid}-{gid}")))?;
        if as_root {
            lchown(&file, Some(uid), Some(gid))?;
            lchown(dir.join(format!("symlink-{uid}-{gid}")), Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

fn xattrs(dir: &Path, as_root: bool, random: &mut Random) -> Result<()> {
    let set = |path: &Path, name: &str, value: &[u8]| -> Result<()> {
        lsetxattr(path, name, value, XattrFlags::empty()).with_context(|| format!("setting xattr {name}"))
    };
    let file = dir.join("file");
    std::fs::write(&file, b"xattrs")?;
    set(&file, "user.plain", b"value")?;
    set(&file, "user.empty", b"")?;
    set(&file, "user.binary", &(0..=255).collect::<Vec<u8>>())?;
    set(&file, "user.large", &random.bytes(3_000))?;
    set(&file, &format!("user.{}", "n".repeat(250)), b"the longest name")?;
    let folder = dir.join("folder");
    std::fs::create_dir(&folder)?;
    set(&folder, "user.of-a-folder", b"value")?;
    let many = dir.join("many");
    std::fs::write(&many, b"")?;
    for index in 0..100 {
        set(&many, &format!("user.number-{index}"), format!("value {index}").as_bytes())?;
    }
    if as_root {
        set(&file, "trusted.plain", b"trusted value")?;
        set(&file, "security.plain", b"security value")?;
        // File capabilities: version 2, cap_net_raw effective and permitted.
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set(&file, "security.capability", &capability)?;
        let link = dir.join("symlink");
        symlink("file", &link)?;
        set(&link, "trusted.of-a-symlink", b"value")?;
    }
    Ok(())
}

/// Tags of the entries of a POSIX ACL as xattr.
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NO_ID: u32 = u32::MAX;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn acls(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    let access = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 4, 1_000),
        (USER, 7, 2_000),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 6, 3_000),
        (MASK, 6, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    let default = acl(&[
        (USER_OBJ, 7, NO_ID),
        (USER, 5, 1_000),
        (GROUP_OBJ, 5, NO_ID),
        (MASK, 5, NO_ID),
        (OTHER, 1, NO_ID),
    ]);
    let set = |path: &Path, name: &str, value: &[u8]| match lsetxattr(path, name, value, XattrFlags::empty())
    {
        Err(Errno::OPNOTSUPP) => Ok(()), // A host without ACLs has none to keep.
        other => other.with_context(|| format!("setting {name}")),
    };
    let file = dir.join("file");
    std::fs::write(&file, b"acl")?;
    set(&file, "system.posix_acl_access", &access)?;
    let folder = dir.join("folder");
    std::fs::create_dir(&folder)?;
    set(&folder, "system.posix_acl_access", &access)?;
    set(&folder, "system.posix_acl_default", &default)?;
    std::fs::write(folder.join("heir"), b"inherits")?;
    std::fs::create_dir(folder.join("heir-folder"))?;
    Ok(())
}

fn deep(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    let mut path = dir.to_owned();
    for level in 0..DEPTH {
        path.push(format!("level-{level}"));
        std::fs::create_dir(&path)?;
    }
    std::fs::write(path.join("bottom"), b"bottom")?;
    Ok(())
}

fn large_dir(dir: &Path, _as_root: bool, _random: &mut Random) -> Result<()> {
    for index in 0..LARGE_DIR_NAMES {
        let path = dir.join(format!("name-{index}"));
        if index % 7 == 0 {
            std::fs::write(path, index.to_string())?
        } else {
            File::create_new(path).map(drop)?
        }
    }
    Ok(())
}

/// Gives every entry a time of its own, children before their folder.
fn set_times(root: &Path) -> Result<()> {
    const TIMES: [(i64, i64); 9] = [
        (1_700_000_000, 987_654_321),
        (-1, 999_999_999),
        (-1_577_836_800, 1),
        (0, 0),
        (0, 1),
        (1 << 31, 5),
        (4_102_444_800, 123_456_789),
        (17_179_869_183, 0),
        (1_234_567_890, 500_000_000),
    ];
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let path = found[next].clone();
        next += 1;
        if path.symlink_metadata()?.is_dir() {
            let mut children = std::fs::read_dir(&path)?
                .map(|child| Ok(child?.path()))
                .collect::<std::io::Result<Vec<_>>>()?;
            children.sort();
            found.extend(children);
        }
    }
    for (index, path) in found.iter().enumerate().rev() {
        let (seconds, nanoseconds) = TIMES[index % TIMES.len()];
        // Later than anything else, so that no host with relative access times moves it when the tree is read.
        let last_access = Timespec { tv_sec: 20_000_000_000 + index as i64, tv_nsec: index as i64 };
        let last_modification = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| format!("setting the times of {}", path.display()))?;
    }
    Ok(())
}
