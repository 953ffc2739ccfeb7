//! `creamery inspect-internal logical-resolve`, `inode-resolve` and `subvolid-resolve`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery::{DataUser, ExtentPart, TreeId};
use serde::Serialize;

use crate::args::{InodeResolveArgs, LogicalResolveArgs, SubvolidResolveArgs};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::place::Place;

#[derive(Serialize)]
struct UserJson {
    inode: u64,
    offset: u64,
    subvolume: u64,
}

#[derive(Serialize)]
struct PathJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl PathJson {
    fn new(path: &Path) -> Self {
        let (path, path_bytes) = text_of(path.as_os_str().as_bytes());
        Self { path, path_bytes }
    }
}

pub(crate) fn logical(args: &LogicalResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal logical-resolve";
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let failed = images.failed(&args.image);
    let fs = images.open(&args.image, Purpose::Read)?;
    let part = if args.ignore_offset { ExtentPart::Whole } else { ExtentPart::Byte };
    let users = fs.resolve_logical(args.logical, part).map_err(&failed).map_err(Failure::of_number)?;
    if !args.inodes {
        let mut paths = Vec::new();
        for user in &users {
            let top = fs.subvolume_path(user.subvolume).map_err(&failed)?;
            let below = fs.inode_paths(user.subvolume, user.ino).map_err(&failed)?;
            paths.extend(below.iter().map(|below| Path::new("/").join(&top).join(below)));
        }
        return print_paths(COMMAND, &paths, args.json);
    }
    let mut out = Output::new();
    let print = |out: &mut Output| -> std::io::Result<()> {
        if !args.json {
            return users.iter().try_for_each(|DataUser { subvolume, ino, offset }| {
                writeln!(out, "inode {ino} offset {offset} root {}", subvolume.get())
            });
        }
        let mut array = Array::begin(out)?;
        for DataUser { subvolume, ino, offset } in &users {
            array.push(&UserJson { inode: *ino, offset: *offset, subvolume: subvolume.get() })?;
        }
        array.end()
    };
    print(&mut out).map_err(writing).and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error))
}

pub(crate) fn inode(args: &InodeResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal inode-resolve";
    let mut images = Images::new(COMMAND, &args.view);
    let place = Place::parse(&args.place);
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let subvolume = fs.metadata(&place.path).map_err(&failed)?.subvolume();
    let paths = fs.inode_paths(subvolume, args.inode).map_err(&failed).map_err(Failure::of_number)?;
    let top = fs.subvolume_path(subvolume).map_err(&failed)?;
    let paths: Vec<PathBuf> = paths.iter().map(|below| Path::new("/").join(&top).join(below)).collect();
    print_paths(COMMAND, &paths, args.json)
}

pub(crate) fn subvolid(args: &SubvolidResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal subvolid-resolve";
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let failed = images.failed(&args.image);
    let fs = images.open(&args.image, Purpose::Read)?;
    let path = fs.subvolume_path(TreeId::new(args.id)).map_err(failed).map_err(Failure::of_number)?;
    print_paths(COMMAND, &[path], args.json)
}

fn print_paths(command: &'static str, paths: &[PathBuf], json: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    let print = |out: &mut Output| -> std::io::Result<()> {
        if !json {
            return paths.iter().try_for_each(|path| out.path(path).and_then(|()| writeln!(out)));
        }
        let mut array = Array::begin(out)?;
        for path in paths {
            array.push(&PathJson::new(path))?;
        }
        array.end()
    };
    print(&mut out).map_err(writing).and_then(|()| out.finish()).map_err(|error| Failure::new(command, error))
}
