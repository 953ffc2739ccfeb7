//! A hundred wrong calls and their error lines: what, where, why, and what to do.

use std::fs;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Run};

use crate::support::{expect_refusal, mkfs_empty, sparse_file};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

pub(crate) fn cases() -> Vec<Case> {
    let needs = [Judge::Program, Judge::BtrfsProgs, Judge::Tool("sfdisk")];
    vec![Case::new("bad-input/wrong-calls", &needs, wrong_calls)]
}

/// The call, the exit status, and the message.
type WrongCall = (&'static str, i32, &'static str);

/// The calls run in a folder with a directory `d` and a file in it, an image that has both and a subvolume, one device of two, and a disk
/// whose second partition has a Btrfs.
#[rustfmt::skip]
const ROWS: [WrongCall; 165] = [
    ("ls raw.img", 1, "ls: raw.img: no Btrfs filesystem: it holds a disk with a DOS partition table; name a partition, as in raw.img@2, which has a Btrfs"),
    ("ls raw.img@3", 1, "ls: raw.img@3: raw.img has no partition 3; there are: 1 (Linux, 100.00MiB); 2 (Linux, 200.00MiB), which has a Btrfs"),
    ("ls raw.img@1", 1, "ls: raw.img@1: no Btrfs filesystem: zeros where the superblock would be"),
    ("ls raw.img@@3", 1, "ls: raw.img@@3: byte 3 of raw.img is not at the start of a sector of 512 bytes"),
    ("ls raw.img@@500M", 1, "ls: raw.img@@500M: byte 524288000 of raw.img is beyond its 419430400 bytes"),
    ("ls raw.img@0", 1, "ls: raw.img@0: raw.img has no partition 0; there are: 1 (Linux, 100.00MiB); 2 (Linux, 200.00MiB), which has a Btrfs"),
    ("ls raw.img@2:/nope", 1, "ls: raw.img@2:/nope: not found; check the path"),
    ("mkfs raw.img", 1, "mkfs: raw.img holds a disk with a DOS partition table: already exists; use -f to overwrite it"),
    ("mkfs x.img", 1, "mkfs: x.img holds a Btrfs filesystem: already exists; use -f to overwrite it"),
    ("mkfs -d raid1 y.img", 2, "mkfs: invalid value 'raid1' for '--data <PROFILE>': profile 'raid1' (one device takes single or dup): not supported; see `creamery mkfs --help`"),
    ("mkfs -n 5000 y.img", 1, "mkfs: node size 5000 is not a power of two from 4096 to 65536"),
    ("mkfs -n 128K y.img", 1, "mkfs: node size 131072 is not a power of two from 4096 to 65536"),
    ("mkfs -s 512 y.img", 1, "mkfs: sector size 512 is not a power of two from 4096 to 65536"),
    ("mkfs -O nonsense -b 200M y.img", 1, "mkfs: unknown filesystem feature 'nonsense'"),
    ("mkfs -U nonsense y.img", 2, "mkfs: invalid value 'nonsense' for '--uuid <UUID>': invalid character: found `n` at 0; see `creamery mkfs --help`"),
    ("mkfs", 2, "mkfs: the argument <IMAGE|DEVICE> is missing; see `creamery mkfs --help`"),
    ("mkfs /nonexistent/y.img -b 200M", 1, "mkfs: /nonexistent/y.img: No such file or directory (os error 2); check the path"),
    ("mkfs d", 1, "mkfs: making a filesystem at d: is a directory; name an image file or a block device"),
    ("mkfs --rootdir nodir y.img", 1, "mkfs: opening source directory 'nodir': No such file or directory (os error 2); check the path"),
    ("mkfs --compress zstd y.img", 2, "mkfs: the following required arguments were not provided: <--rootdir <DIR[:/TARGET]>|--from-tar <ARCHIVE>>; see `creamery mkfs --help`"),
    ("mkfs --from-tar nope.tar --rootdir d y.img", 2, "mkfs: the argument '--from-tar <ARCHIVE>' cannot be used with '--rootdir <DIR[:/TARGET]>'; see `creamery mkfs --help`"),
    ("mkfs --oci-whiteouts --rootdir d y.img", 2, "mkfs: the argument '--oci-whiteouts' cannot be used with '--rootdir <DIR[:/TARGET]>'; see `creamery mkfs --help`"),
    ("mkfs --oci-whiteouts y.img", 2, "mkfs: the following required arguments were not provided: --from-tar <ARCHIVE>; see `creamery mkfs --help`"),
    ("mkfs --from-tar nope.tar y.img", 1, "mkfs: nope.tar: No such file or directory (os error 2); check the path"),
    ("mkfs --from-tar d y.img", 1, "mkfs: d is a directory, expected an archive"),
    ("mkfs --from-tar - --from-tar - y.img", 2, "mkfs: only one archive can come from standard input; see `creamery mkfs --help`"),
    ("mkfs -f --from-tar x.img x.img", 1, "mkfs: the archive is the image itself"),
    ("tar -t -f nope.tar", 1, "tar: nope.tar: No such file or directory (os error 2); check the path"),
    ("tar -t -f d/f", 1, "tar: d/f: the archive ends within a block"),
    ("tar -t -x -f d/f", 2, "tar: the argument '--list' cannot be used with '--extract'; see `creamery tar --help`"),
    ("tar -t -f d/f x.img:/", 2, "tar: the argument '--list' cannot be used with '[IMAGE:/PATH]...'; see `creamery tar --help`"),
    ("tar -c --oci-whiteouts -f - x.img:/", 2, "tar: the argument '--create' cannot be used with '--oci-whiteouts'; see `creamery tar --help`"),
    ("mkfs --rootdir d --compress brotli y.img", 2, "mkfs: invalid value 'brotli' for '--compress <ALGORITHM[:LEVEL]>': \"brotli\": unknown compression, expected zlib, lzo or zstd, optionally with a level: zstd:3; see `creamery mkfs --help`"),
    ("mkfs -L x -b 200M --csum md5 y.img", 2, "mkfs: invalid value 'md5' for '--csum <TYPE>': unknown checksum, expected crc32c, xxhash64, sha256, blake2b; see `creamery mkfs --help`"),
    ("mount x.img", 2, "mount: the following required arguments were not provided: <DIR>; see `creamery mount --help`"),
    ("ls --rescue everything x.img:/", 2, "ls: invalid value 'everything' for '--rescue <WORDS>': unknown rescue option 'everything': expected nologreplay, usebackuproot, ignorebadroots, ignoredatacsums, ignoremetacsums, ignoresuperflags or all; see `creamery ls --help`"),
    ("mkdir --rescue ibadroots x.img:/new", 1, "mkdir: x.img: rescue options allow reading only"),
    ("scrub start -c 9 x.img", 2, "scrub start: invalid value '9' for '-c <CLASS>': 9 is not in 0..=3; see `creamery scrub start --help`"),
    ("scrub resume -n 99 x.img", 2, "scrub resume: invalid value '99' for '-n <LEVEL>': 99 is not in 0..=7; see `creamery scrub resume --help`"),
    ("rescue zero-log", 2, "rescue zero-log: the following required arguments were not provided: <IMAGE>; see `creamery rescue zero-log --help`"),
    ("rescue zero-log raw.img", 1, "rescue zero-log: raw.img: no Btrfs filesystem: it holds a disk with a DOS partition table; name a partition, as in raw.img@2, which has a Btrfs"),
    ("rescue super-recover -y raw.img", 1, "rescue super-recover: raw.img: no superblock copy is intact: filesystem is damaged"),
    ("rescue find-root -l 300 x.img", 2, "rescue find-root: invalid value '300' for '-l <LEVEL>': 300 is not in 0..=255; see `creamery rescue find-root --help`"),
    ("rescue find-root nope.img", 1, "rescue find-root: opening nope.img: No such file or directory (os error 2); check the path"),
    ("rescue clear-space-cache v3 x.img", 2, "rescue clear-space-cache: expected v1 or v2; see `creamery rescue clear-space-cache --help`"),
    ("rescue chunk-recover x.img", 1, "rescue chunk-recover: rebuilding the chunk tree from the devices: not supported; use `btrfs rescue chunk-recover` of btrfs-progs on an image that is not mounted"),
    ("ls --generation x x.img", 2, "ls: invalid value 'x' for '--generation <N>': expected a whole number; see `creamery ls --help`"),
    ("mkfs -f --rootdir d --rootdir d:/f/g x.img", 1, "mkfs: /f is a directory in d:/f/g, but not in d; remove one of them, or give one of them another target (--rootdir DIR:/TARGET)"),
    ("mount nope.img d", 1, "mount: opening nope.img: No such file or directory (os error 2); check the path"),
    ("mount x.img d -o compress=brotli", 1, "mount: mount option compress=brotli: \"brotli\": unknown compression, expected zlib, lzo or zstd, optionally with a level: zstd:3"),
    ("mount x.img d -o subvol=/nope", 1, "mount: x.img: subvolume /nope: not found; check the path"),
    ("umount", 2, "umount: the following required arguments were not provided: <DIR|IMAGE>; see `creamery umount --help`"),
    ("umount d", 1, "umount: d: nothing is mounted there"),
    ("ls", 2, "ls: the following required arguments were not provided: <IMAGE:/PATH>...; see `creamery ls --help`"),
    ("ls x.img:d", 1, "ls: opening x.img:d: No such file or directory (os error 2); check the path"),
    ("cat x.img:/d", 1, "cat: x.img:/d: is a directory; use ls"),
    ("cp x.img:/d/f nodir/y", 1, "cp: nodir: No such file or directory (os error 2); check the path"),
    ("cp d/f d/g", 1, "cp: both paths are on the host; name a file in an image as IMAGE:/PATH, or use cp(1)"),
    ("cp x.img /etc/hosts", 1, "cp: both paths are on the host; name a file in an image as x.img:/PATH, or use cp(1)"),
    ("cp d/f x.img", 1, "cp: both paths are on the host; name a file in an image as x.img:/PATH, or use cp(1)"),
    ("cp d/f x.img:d", 1, "cp: both paths are on the host; name a file in an image as x.img:/d, or use cp(1)"),
    ("cp -r x.img:/d x.img:/d/e", 1, "cp: x.img:/d: a directory cannot be copied into itself"),
    ("cp d/f x.img:/nodir/x", 1, "cp: x.img:/nodir/x: not found; check the path"),
    ("cp d x.img:/", 1, "cp: d: omitted: is a directory; use -r or -a"),
    ("cp x.img:/d/f x.img:/d/f", 1, "cp: x.img:/d/f: same file as /d/f"),
    ("mkdir x.img:/d", 1, "mkdir: x.img:/d: already exists; use -p to accept that"),
    ("mkdir x.img:/a/b/c", 1, "mkdir: x.img:/a/b/c: not found; use -p to make parents too"),
    ("mkdir -m 999 x.img:/z", 2, "mkdir: invalid value '999' for '--mode <MODE>': expected an octal mode from 0 to 7777; see `creamery mkdir --help`"),
    ("rm x.img:/d", 1, "rm: x.img:/d: is a directory; use -r for directories"),
    ("rm x.img:/nope", 1, "rm: x.img:/nope: not found; check the path"),
    ("fallocate x.img:/d/f", 2, "fallocate: the following required arguments were not provided: --length <SIZE>; see `creamery fallocate --help`"),
    ("fallocate -l 1X x.img:/d/f", 2, "fallocate: invalid value '1X' for '--length <SIZE>': invalid unit in '1X': expected K, M, G, T, P or E; see `creamery fallocate --help`"),
    ("stats d", 1, "stats: d: nothing is mounted there; mount it with `creamery mount IMAGE DIR` and name either"),
    ("sync d", 1, "sync: d: nothing is mounted there; `creamery mounts` lists all mounts"),
    ("subvolume create x.img:/s", 1, "subvolume create: x.img:/s: already exists"),
    ("subvolume create x.img:/a/b", 1, "subvolume create: x.img:/a/b: not found; check the path"),
    ("subvolume delete x.img:/nope", 1, "subvolume delete: x.img:/nope: not found; check the path"),
    ("subvolume snapshot x.img:/s", 2, "subvolume snapshot: the following required arguments were not provided: <[IMAGE:]/PATH|PATH>; see `creamery subvolume snapshot --help`"),
    ("subvolume snapshot x.img:/nope x.img:/t", 1, "subvolume snapshot: x.img:/nope: not found; check the path"),
    ("subvolume list d", 1, "subvolume list: d is not on a mount of an image: not supported; name a path on a live mount, or IMAGE:/PATH in an image that is not mounted; on a mount of the kernel use `btrfs`"),
    ("subvolume show x.img:/d", 1, "subvolume show: x.img:/d: not the root of a subvolume"),
    ("subvolume find-new x.img:/s x", 2, "subvolume find-new: invalid value 'x' for '<GENERATION>': expected a whole number; see `creamery subvolume find-new --help`"),
    ("subvolume set-default 999 x.img", 1, "subvolume set-default: x.img: subvolume 999: not found; check the number"),
    ("quota enable d", 1, "quota enable: d is not on a mount of an image: not supported; name a path on a live mount, or IMAGE:/PATH in an image that is not mounted; on a mount of the kernel use `btrfs`"),
    ("quota rescan x.img", 1, "quota rescan: x.img: quotas are not enabled: not found; use `creamery quota enable`"),
    ("qgroup show x.img", 1, "qgroup show: x.img: quotas are not enabled: not found; use `creamery quota enable`"),
    ("qgroup create 0 x.img", 2, "qgroup create: invalid value '0' for '<QGROUPID>': invalid quota group \"0\": expected LEVEL/NUMBER; see `creamery qgroup create --help`"),
    ("qgroup create abc x.img", 2, "qgroup create: invalid value 'abc' for '<QGROUPID>': invalid quota group \"abc\": expected LEVEL/NUMBER; see `creamery qgroup create --help`"),
    ("qgroup limit 1G x.img", 1, "qgroup limit: x.img:/: quotas are not enabled: not found; use `creamery quota enable`"),
    ("qgroup assign 0/5 0/6 x.img", 1, "qgroup assign: x.img:/: quotas are not enabled: not found; use `creamery quota enable`"),
    ("property get x.img:/d nonsense", 2, "property get: invalid value 'nonsense' for '[NAME]' [possible values: ro, label, compression]; see `creamery property get --help`"),
    ("property set x.img:/d/f compression brotli", 1, "property set: x.img:/d/f: unknown compression algorithm"),
    ("property set x.img:/s ro maybe", 1, "property set: x.img: expected true or false, found 'maybe'"),
    ("filesystem defragment -c brotli x.img:/d/f", 2, "filesystem defragment: invalid value 'brotli' for '--compress <ALGORITHM[:LEVEL]>': \"brotli\": unknown compression, expected zlib, lzo or zstd, optionally with a level: zstd:3; see `creamery filesystem defragment --help`"),
    ("filesystem fiemap x.img:/d", 1, "filesystem fiemap: x.img:/d: is a directory; check the path"),
    ("filesystem trim nope.img", 1, "filesystem trim: opening nope.img: No such file or directory (os error 2); check the path"),
    ("check nope.img", 8, "check: opening nope.img: No such file or directory (os error 2); check the path"),
    ("check d", 8, "check: d is neither a regular file nor a block device"),
    ("check --repair x.img", 16, "check: --repair is not supported: check never writes; see `creamery check --help`"),
    ("inspect dump-super nope.img", 1, "dump-super: opening nope.img: No such file or directory (os error 2); check the path"),
    ("inspect dump-tree -t nonsense x.img", 1, "dump-tree: unknown tree 'nonsense'"),
    ("inspect dump-tree -b abc x.img", 2, "inspect dump-tree: invalid value 'abc' for '--block <BLOCK>': expected a whole number; see `creamery inspect dump-tree --help`"),
    ("inspect inode-resolve 99999 x.img", 1, "inspect-internal inode-resolve: x.img: 5/99999 has no name: not found; check the number"),
    ("inspect logical-resolve 5 x.img", 1, "inspect-internal logical-resolve: x.img: no data extent at 5: not found; check the number"),
    ("inspect subvolid-resolve 999 x.img", 1, "inspect-internal subvolid-resolve: x.img: reference to subvolume 999: not found; check the number"),
    ("dedupe x.img:/nope", 1, "dedupe: x.img:/nope: not found; check the path"),
    ("qqqq x.img:/d/f", 2, "unrecognized subcommand 'qqqq'; see `creamery --help`"),
    ("chmod 999 x.img:/d/f", 2, "chmod: invalid value '999' for '<MODE>': invalid mode '999': expected one such as 644 or u=rwX,go-w; see `creamery chmod --help`"),
    ("chmod 644 x.img:/nope", 1, "chmod: x.img:/nope: not found; check the path"),
    ("chown ada x.img:/d/f", 1, "chown: x.img: user 'ada': the image has no /etc/passwd, expected an id: not found; use a numeric ID"),
    ("chown 1000: x.img:/d/f", 1, "chown: x.img: '1000:' needs a user name for the login group, found an id"),
    ("touch -d yesterday x.img:/d/f", 2, "touch: invalid value 'yesterday' for '--date <DATE>': invalid time 'yesterday': expected @SECONDS or a date such as 2026-11-25T18:00:00Z; see `creamery touch --help`"),
    ("touch -t 99 x.img:/d/f", 2, "touch: invalid stamp '99': expected [[CC]YY]MMDDhhmm[.ss]; see `creamery touch --help`"),
    ("truncate x.img:/d/f", 2, "truncate: the following required arguments were not provided: --size <[+-<>/%]SIZE>; see `creamery truncate --help`"),
    ("truncate -s %0 x.img:/d/f", 2, "truncate: invalid value '%0' for '--size <[+-<>/%]SIZE>': cannot round to a multiple of 0; see `creamery truncate --help`"),
    ("mv x.img:/d", 2, "mv: missing destination after the source; see `creamery mv --help`"),
    ("mv x.img:/d/f a.img:/", 1, "mv: expected all paths in one image; use `creamery cp -a`, then remove the source"),
    ("mv x.img:/d x.img:/d/e", 1, "mv: x.img:/d: moving a directory into itself"),
    ("ln x.img:/d x.img:/e", 1, "ln: x.img:/d: hard link not allowed for directory; use -s"),
    ("ln d/f x.img:/e", 1, "ln: a hard link cannot leave its image; name the file as IMAGE:/PATH, or use -s"),
    ("diff x.img", 2, "diff: the following required arguments were not provided: <NEW>; see `creamery diff --help`"),
    ("diff x.img:/nope x.img", 2, "diff: x.img:/nope: not found; check the path"),
    ("diff x.img nope.img", 2, "diff: opening nope.img: No such file or directory (os error 2); check the path"),
    ("diff -0 --stat x.img x.img", 2, "diff: the argument '--null' cannot be used with '--stat'; see `creamery diff --help`"),
    ("find -name x", 2, "find: expected IMAGE:/PATH before the tests; see `creamery find --help`"),
    ("find x.img -exec rm", 2, "find: unknown test '-exec'; see `creamery find --help`"),
    ("find x.img -type x", 2, "find: -type x: expected letters of f, d, l, p, s, c, b; see `creamery find --help`"),
    ("tar -c x.img:/d", 2, "tar: the following required arguments were not provided: --file <ARCHIVE>; see `creamery tar --help`"),
    ("tar -f a.tar x.img:/d", 2, "tar: the following required arguments were not provided: --create; see `creamery tar --help`"),
    ("tar -c -f a.tar x.img:/nope", 1, "tar: x.img:/nope: not found; check the path"),
    ("tar -c -f x.img x.img:/d", 1, "tar: the archive is the image itself"),
    ("tar -c -f a.tar x.img:/d a.img:/", 2, "tar: all members must be in one image; see `creamery tar --help`"),
    ("tar -x -f nope.tar x.img:/", 1, "tar: nope.tar: No such file or directory (os error 2); check the path"),
    ("tar -x -f d/f x.img:/", 1, "tar: d/f: the archive ends within a block; earlier members are unpacked, the last one perhaps in part"),
    ("tar -x -f d/f x.img:/d/f", 1, "tar: x.img:/d/f: not a directory; check the path"),
    ("filesystem label nope.img", 1, "filesystem label: opening nope.img: No such file or directory (os error 2); check the path"),
    ("--frob", 2, "unexpected argument '--frob' found; see `creamery --help`"),
    ("cp -a x.img:/ /proc/x", 1, "cp: /proc/x: No such file or directory (os error 2); check the path"),
    ("cp -a nohost x.img:/", 1, "cp: nohost: No such file or directory (os error 2); check the path"),
    ("ls a.img", 1, "ls: a.img: filesystem 01234567-89ab-cdef-0123-456789abcdef: device 2 is missing, 1 given: device missing; name the others with --device PATH, or read without them with --degraded"),
    ("check a.img", 8, "check: a.img: filesystem 01234567-89ab-cdef-0123-456789abcdef: device 2 is missing, 1 given: device missing; name the others with --device PATH, or read without them with --degraded"),
    ("mount a.img d", 1, "mount: a.img: writing to a filesystem of 2 devices: not supported; mount it with -o ro, or use Linux to write to it"),
    ("inspect dump-tree -b 12345 x.img", 1, "dump-tree: x.img: invalid tree block address 12345: expected a multiple of 4096"),
    ("inspect dump-tree -t 999 x.img", 1, "dump-tree: x.img: tree 999: not found; check the number"),
    ("mount -o subvolid=999 x.img d", 1, "mount: x.img: subvolume 999: not found; check the number"),
    ("mount -o subvolid=999 raw.img@2 d", 1, "mount: raw.img@2: subvolume 999: not found; check the number"),
    ("ls --subvolid 999 x.img", 1, "ls: x.img: subvolume 999: not found; check the number"),
    ("ls --subvol nope x.img", 1, "ls: x.img: subvolume 'nope': not found; check the path"),
    ("check", 16, "check: the following required arguments were not provided: <IMAGE>...; see `creamery check --help`"),
    ("check --threads 0 x.img", 16, "check: invalid value '0' for '--threads <N>': expected at least 1; see `creamery check --help`"),
    ("cp x.img", 2, "cp: missing destination after the source; see `creamery cp --help`"),
    ("filesystem resize 15E x.img", 1, "filesystem resize: making x.img 17293822569102704640 bytes long: file too large; the host's filesystem limits the file size; use a smaller size"),
    ("cp -p d/f -a", 2, "cp: missing destination after the source; see `creamery cp --help`"),
    ("cp", 2, "cp: the following required arguments were not provided: <SOURCE>...; see `creamery cp --help`"),
    ("qgroup limit 1G 0/5 -e x.img y", 2, "qgroup limit: expected at most a group and a path; see `creamery qgroup limit --help`"),
    ("subvolume set-default 5 --usesupercopy x.img y", 2, "subvolume set-default: expected at most an ID and a path; see `creamery subvolume set-default --help`"),
    ("subvolume lsit x.img", 2, "subvolume: unrecognized subcommand 'lsit', did you mean 'list'?; see `creamery subvolume --help`"),
    ("mkfs --rootdri d y.img", 2, "mkfs: unexpected argument '--rootdri' found, did you mean '--rootdir'?; see `creamery mkfs --help`"),
    ("cp x.img:/d/f /dev/full", 1, "cp: /dev/full: No space left on device (os error 28); make room on the host, where this is written"),
    ("subvolume delete -i 999 x.img", 1, "subvolume delete: x.img: subvolume 999: not found; `creamery subvolume list` shows the IDs"),
    ("subvolume show -r 999 x.img", 1, "subvolume show: x.img: subvolume 999: not found; check the number"),
    ("rm x.img:/", 1, "rm: x.img:/: is the root directory"),
    ("fallocate -l 0 x.img:/d/f", 1, "fallocate: x.img:/d/f: empty range"),
    ("mkfs -b 1 y.img", 1, "mkfs: y.img: 1 bytes are too small for these profiles, expected at least 114294784: no space left on device; use a larger size with -b"),
    ("mkfs -b 18446744073709551616 y.img", 2, "mkfs: invalid value '18446744073709551616' for '--byte-count <SIZE>': size '18446744073709551616' is 16 EiB or more; see `creamery mkfs --help`"),
];

fn wrong_calls(bench: &Bench) -> Result<()> {
    let here = bench.scratch.dir("here")?;
    let at = |name: &str| here.join(name);
    let creamery = |words: &[&str]| bench.creamery().run(words).within(&here);
    fs::create_dir(at("d"))?;
    fs::write(at("d/f"), "a file")?;
    mkfs_empty(bench.creamery(), &[], "200M", &at("x.img"))?;
    creamery(&["cp", "-a", "d", "x.img:/"]).ok()?;
    creamery(&["subvolume", "create", "x.img:/s"]).ok()?;
    sparse_file(&at("a.img"), 300 << 20)?;
    sparse_file(&at("b.img"), 300 << 20)?;
    let of_two = Run::new("mkfs.btrfs").args(["-q", "-d", "single", "-m", "raid1", "-U", UUID]);
    of_two.arg(at("a.img")).arg(at("b.img")).ok()?;
    std::fs::remove_file(at("b.img"))?;
    sparse_file(&at("raw.img"), 400 << 20)?;
    let table = "label: dos\nsize=100M\nsize=200M,type=83\n";
    Run::new("sfdisk").arg("-q").arg(at("raw.img")).input(table).ok()?;
    creamery(&["mkfs", "-q", "raw.img@2"]).ok()?;

    let mut problems = Vec::new();
    for (call, status, said) in ROWS {
        let words: Vec<&str> = call.split_whitespace().collect();
        let finished = creamery(&words).output()?;
        if finished.code != Some(status) || finished.stderr_text() != format!("creamery: {said}\n") {
            problems.push(format!("{finished}\n  wanted {status}, creamery: {said}"));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    // As with cp(1), which goes on behind a missing source.
    fs::create_dir(at("to"))?;
    let (source, target) = (["", "d/f", "x.img:/s"], ["", "d/f", "to"]);
    for (ours, theirs) in [(&["d/f", ""][..], &["d/f", ""][..]), (&source, &target)] {
        expect_refusal(creamery(&["cp"]).args(ours), &["is empty"])?;
        ensure!(Run::new("cp").args(theirs).within(&here).output()?.code == Some(1), "{theirs:?}");
    }
    let copied = creamery(&["cat", "x.img:/s/f"]).ok()?.stdout;
    ensure!(copied == b"a file" && fs::read(at("to/f"))? == copied, "it did not go on");
    expect_refusal(creamery(&["cp", "x.img:/d/f", ""]), &["the destination is empty"])?;
    expect_refusal(creamery(&["cp", "", "d/f"]), &["a source is empty"])?;
    let said = "the target of a symbolic link; the maximum is 4095 bytes";
    expect_refusal(creamery(&["ln", "-s", &"a".repeat(4096), "x.img:/long"]), &["x.img:/long", said])
}
