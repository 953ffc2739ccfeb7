//! The program under the names of helpers of mount(8) and umount(8): `mount.fuse.creamery` for `mount -t fuse.creamery` and for fstab,
//! `umount.fuse.creamery` so that umount(8), too, returns when the image is closed.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Parser;

use crate::commands::mount::{self, MountArgs, UmountArgs};
use crate::failure::Failure;
use crate::view::DeviceArgs;

/// How mount(8) calls its helper: `mount.TYPE SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
#[derive(Parser, Debug)]
#[command(name = "mount.fuse.creamery", disable_help_flag = true, disable_version_flag = true)]
struct MountCall {
    image: PathBuf,
    dir: PathBuf,
    /// Sloppy: accept unknown options.
    #[arg(short = 's')]
    sloppy: bool,
    /// Fake: do all but the mount.
    #[arg(short = 'f')]
    fake: bool,
    /// Do not write mtab.
    #[arg(short = 'n')]
    no_mtab: bool,
    #[arg(short = 'v')]
    verbose: bool,
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    #[arg(short = 't')]
    kind: Option<OsString>,
    #[arg(short = 'o')]
    options: Vec<OsString>,
}

/// How umount(8) calls its helper: `umount.TYPE DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.
#[derive(Parser, Debug)]
#[command(name = "umount.fuse.creamery", disable_help_flag = true, disable_version_flag = true)]
struct UmountCall {
    dir: PathBuf,
    /// Force: for servers that do not answer. There is nothing to force here: `-l` is the way out.
    #[arg(short = 'f')]
    force: bool,
    #[arg(short = 'l')]
    lazy: bool,
    /// Do not write mtab.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Remount read-only when it is busy: it stays as it is.
    #[arg(short = 'r')]
    read_only: bool,
    #[arg(short = 'v')]
    verbose: bool,
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    #[arg(short = 't')]
    kind: Option<OsString>,
}

/// The task that the helper's caller asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelperCall {
    Mount(MountArgs),
    /// Check everything, mount nothing.
    Pretend(MountArgs),
    Umount(UmountArgs),
}

/// Parses the call if the program has a helper's name.
pub(crate) fn parse(args: &[OsString]) -> Option<Result<HelperCall, clap::Error>> {
    let name = std::path::Path::new(args.first()?).file_name().and_then(OsStr::to_str)?;
    match name {
        "mount.fuse.creamery" | "mount.creamery" => Some(MountCall::try_parse_from(args).map(mount_call)),
        "umount.fuse.creamery" | "umount.creamery" => Some(UmountCall::try_parse_from(args).map(umount_call)),
        _ => None,
    }
}

/// Options that mount(8) omits because filesystems have them by default: set-user-id programs and device files work unless the options say
/// otherwise. An unprivileged mounter still does not get them.
const ASSUMED: &str = "suid,dev";

fn mount_call(call: MountCall) -> HelperCall {
    let options = std::iter::once(OsString::from(ASSUMED)).chain(call.options).collect();
    let args = MountArgs {
        image: call.image,
        dir: call.dir,
        options,
        foreground: false,
        verbose: call.verbose,
        announce: false,
        sloppy: call.sloppy,
        set: DeviceArgs::default(),
    };
    if call.fake { HelperCall::Pretend(args) } else { HelperCall::Mount(args) }
}

fn umount_call(call: UmountCall) -> HelperCall {
    HelperCall::Umount(UmountArgs { place: call.dir, lazy: call.lazy })
}

/// Runs the helper's task.
pub(crate) fn run(call: &HelperCall) -> Result<(), Failure> {
    match call {
        HelperCall::Mount(args) => mount::run(args),
        HelperCall::Pretend(args) => {
            mount::parse_options(args).map(drop).map_err(|error| Failure::new("mount", error))
        }
        HelperCall::Umount(args) => mount::umount(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str) -> Result<HelperCall, clap::Error> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        parse(&words).expect("the name of a helper")
    }

    #[test]
    fn the_helper_takes_what_mount_8_passes() {
        let call =
            call("/sbin/mount.fuse.creamery /disk.img /mnt -sn -o rw,subvol=a -v -t fuse.creamery").unwrap();
        let HelperCall::Mount(args) = call else { panic!("{call:?}") };
        assert!(args.sloppy && args.verbose);
        assert_eq!(args.options, [ASSUMED, "rw,subvol=a"]);
        assert_eq!(args.dir, PathBuf::from("/mnt"));
    }

    #[test]
    fn the_helper_takes_what_umount_8_passes() {
        let wanted = UmountArgs { place: PathBuf::from("/mnt"), lazy: true };
        assert_eq!(
            call("umount.fuse.creamery /mnt -nl -t fuse.creamery").unwrap(),
            HelperCall::Umount(wanted)
        );
    }

    #[test]
    fn the_helper_wants_a_source_and_a_directory() {
        assert!(call("mount.fuse.creamery /disk.img").is_err());
        assert!(call("mount.fuse.creamery /disk.img /mnt -x").is_err());
        assert!(parse(&[OsString::from("creamery"), OsString::from("mount")]).is_none());
    }
}
