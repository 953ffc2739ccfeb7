//! `creamery mount` and `umount`: what they are told. The same program under the name `mount.fuse.creamery` is what
//! mount(8) calls for `mount -t fuse.creamery` and for fstab.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};
use creamery::Error;

use crate::failure::Failure;

/// Mount an image.
///
/// The filesystem is read-write unless -o ro is given. The command returns once the mount answers; the program goes
/// on in the background until `creamery umount DIR`.
///
/// Options of -o: ro, rw, subvol=PATH, subvolid=ID, commit=SECONDS, uid=ID, gid=ID (show every file as owned by
/// them), allow_other, default_permissions. Options that mean nothing here (defaults, auto, noauto, user, nofail,
/// _netdev, x-*) are accepted.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountArgs {
    /// Image file or block device.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,

    /// Where to mount it.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Mount options, with commas between; may be given several times.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<OsString>,

    /// Stay in the foreground.
    #[arg(short = 'F', long)]
    pub(crate) foreground: bool,

    /// Say more.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
}

/// Unmount, and return when the image is closed and durable.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct UmountArgs {
    /// Where it is mounted.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Detach the mount now, even if it is in use; the image is closed when the last user is gone.
    #[arg(short = 'l', long)]
    pub(crate) lazy: bool,
}

/// How mount(8) calls a helper: `mount.TYPE SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
#[derive(Parser, Debug)]
#[command(name = "mount.fuse.creamery", disable_help_flag = true, disable_version_flag = true)]
struct HelperArgs {
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

/// What a mount helper was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HelperCall {
    pub(crate) mount: MountArgs,
    /// Unknown options are no error.
    pub(crate) sloppy: bool,
    /// Check everything, mount nothing.
    pub(crate) fake: bool,
}

/// Names of the program under which it is a mount helper.
pub(crate) const HELPER_NAMES: [&str; 2] = ["mount.fuse.creamery", "mount.creamery"];

/// Parses the arguments of a mount helper, the program's name included.
pub(crate) fn parse_helper(args: impl IntoIterator<Item = OsString>) -> Result<HelperCall, clap::Error> {
    let args = HelperArgs::try_parse_from(args)?;
    let mount = MountArgs {
        image: args.image,
        dir: args.dir,
        options: args.options,
        foreground: false,
        verbose: args.verbose,
    };
    Ok(HelperCall { mount, sloppy: args.sloppy, fake: args.fake })
}

fn not_yet(command: &'static str) -> Failure {
    Failure::new(command, Error::unsupported("mounting in this build"))
}

/// `creamery mount`.
pub(crate) fn run(args: &MountArgs) -> Result<(), Failure> {
    let _ = args;
    Err(not_yet("mount"))
}

/// `creamery umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let _ = args;
    Err(not_yet("umount"))
}

/// `mount.fuse.creamery`.
pub(crate) fn helper(call: &HelperCall) -> Result<(), Failure> {
    let _ = (call.sloppy, call.fake);
    run(&call.mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str) -> Result<HelperCall, clap::Error> {
        parse_helper(words.split(' ').map(OsString::from))
    }

    #[test]
    fn the_helper_takes_what_mount_8_passes() {
        let call = call("mount.fuse.creamery /disk.img /mnt -sn -o rw,subvol=a -v -t fuse.creamery").unwrap();
        assert!(call.sloppy && call.mount.verbose && !call.fake);
        assert_eq!(call.mount.options, ["rw,subvol=a"]);
        assert_eq!(call.mount.dir, PathBuf::from("/mnt"));
    }

    #[test]
    fn the_helper_wants_a_source_and_a_directory() {
        assert!(call("mount.fuse.creamery /disk.img").is_err());
        assert!(call("mount.fuse.creamery /disk.img /mnt -x").is_err());
    }
}
