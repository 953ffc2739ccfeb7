//! `creamery tar`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use creamery::error::Escaped;
use creamery::progress::Progress;
use creamery::tar::{TarMember, TarOptions};
use creamery::{Error, ErrorKind};

use super::tar_list::{TarListForm, list};
use crate::archives::{self, is_stream};
use crate::closed_output::expect_open;
use crate::failure::{Failure, complain, warn, with_advice};
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::losses::{Losses, Watched};
use crate::names::NamePrinter;
use crate::path_in_image::{PathInImage, is_image};
use crate::progress::ProgressArgs;
use crate::view::WriteArgs;

/// Write archives of what is in an image, unpack archives into one, list them.
///
/// It writes pax archives with owners by number, times to the nanosecond, extended attributes,
/// ACLs, hard links, device nodes and holes. It reads any tar archive, also packed with gzip
/// or zstd. Members have the names of the image, without the slash in front; with -C names
/// begin at that directory. Owners, permissions and attributes are always kept, as GNU tar
/// does for root with -p --xattrs --acls.
///
/// Unpacked members stay below their directory, whatever the archive says: names with ".."
/// are refused, and links lead no further up. Members that cannot be made are printed, and
/// the exit status is 1.
///
/// Examples:
///   creamery tar -c -f etc.tar disk.img:/etc
///   creamery tar -c -f - -C disk.img:/ | ssh host tar -x --xattrs --acls -C /srv
///   creamery tar -x -f rootfs.tar.gz disk.img:/
///   creamery tar -x --oci-whiteouts -f layer.tar disk.img:/
///   xz -dc rootfs.tar.xz | creamery tar -x -f - disk.img:/srv
///   creamery tar -t -v -f rootfs.tar.gz
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "creamery tar -c -f ARCHIVE [OPTIONS] <IMAGE:/PATH>...\n       \
    creamery tar -c -f ARCHIVE -C <IMAGE:/DIR> [PATH]...\n       \
    creamery tar -x -f ARCHIVE [OPTIONS] <IMAGE:/DIR>\n       \
    creamery tar -t -f ARCHIVE [-v | --json]"
)]
pub(crate) struct TarArgs {
    /// Write an archive.
    #[arg(short = 'c', long, required_unless_present_any = ["extract", "list"])]
    #[arg(conflicts_with_all = ["extract", "list"])]
    create: bool,

    /// Unpack an archive.
    #[arg(short = 'x', long, conflicts_with = "list")]
    extract: bool,

    /// Print the names in an archive; with -v like `ls -l`.
    #[arg(short = 't', long, conflicts_with_all = ["directory", "places"])]
    list: bool,

    /// With -t, print one JSON array.
    #[arg(long, requires = "list", conflicts_with = "verbose")]
    json: bool,

    /// The archive; - is standard output or input.
    #[arg(short = 'f', long, value_name = "ARCHIVE")]
    file: PathBuf,

    /// Names of members begin here, or go there.
    #[arg(short = 'C', long, value_name = "IMAGE:/DIR")]
    directory: Option<OsString>,

    /// The files for the archive, or the directory to unpack to.
    #[arg(value_name = "IMAGE:/PATH", required_unless_present_any = ["directory", "list"])]
    places: Vec<OsString>,

    /// The archive is a layer of a container image: .wh.NAME and .wh..wh..opq delete existing files.
    #[arg(long, conflicts_with_all = ["create", "list"])]
    oci_whiteouts: bool,

    /// Continue past damage: lost parts of files are holes, each is printed, and the exit status is 1.
    #[arg(long, conflicts_with_all = ["extract", "list"])]
    ignore_errors: bool,

    /// Write the losses to FILE, as JSON (`creamery help json`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["extract", "list"])]
    report: Option<PathBuf>,

    /// With -c, replace also an image, or a file that you may not write.
    #[arg(long, conflicts_with_all = ["extract", "list"])]
    force: bool,

    /// Print each name on standard error; with -t print more of each.
    #[arg(short = 'v', long)]
    verbose: bool,

    /// Keep permissions (default).
    #[arg(short = 'p', long, alias = "same-permissions")]
    preserve_permissions: bool,

    /// Use numbers for owners (default).
    #[arg(long)]
    numeric_owner: bool,

    /// Keep extended attributes (default).
    #[arg(long, hide = true)]
    xattrs: bool,

    /// Keep ACLs (default).
    #[arg(long, hide = true)]
    acls: bool,

    /// Keep SELinux labels (default).
    #[arg(long, hide = true)]
    selinux: bool,

    /// Keep holes (default).
    #[arg(short = 'S', long, hide = true)]
    sparse: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn run(args: &TarArgs) -> Result<(), Failure> {
    match (args.create, args.list, args.verbose, args.json) {
        (true, ..) => create(args),
        (_, true, _, true) => list(&args.file, TarListForm::Json),
        (_, true, true, _) => list(&args.file, TarListForm::Long),
        (_, true, ..) => list(&args.file, TarListForm::Names),
        _ => extract(args),
    }
}

impl TarArgs {
    /// A counter of names; another part prints them.
    fn names(&self) -> NamePrinter {
        let names = NamePrinter::new("tar", false, self.progress);
        if self.verbose { names.unseen() } else { names }
    }
}

/// Prints names as they come, on standard error, since the archive may go to standard output.
struct TarNamePrinter<'a> {
    verbose: bool,
    rest: &'a dyn Progress,
}

impl Progress for TarNamePrinter<'_> {
    fn entry(&self, path: &[u8], bytes: u64) {
        if self.verbose {
            crate::failure::say(&Escaped(path).to_string());
        }
        self.rest.entry(path, bytes);
    }

    fn in_place(&self, _path: &[u8]) {
        interrupt::archive_in_place();
    }

    fn go_on(&self) -> Result<(), Error> {
        self.rest.go_on()
    }

    fn lost(&self, path: &[u8], what: creamery::progress::Lost, error: &Error) {
        self.rest.lost(path, what, error);
    }
}

/// The members of an archive, which all come from one image.
fn members(args: &TarArgs, images: &mut Images<'_>) -> Result<(PathBuf, Vec<TarMember>), Failure> {
    if let Some(dir) = &args.directory {
        let PathInImage { image, path: dir } = images.place(dir)?;
        let all = [OsString::from(".")];
        let names = if args.places.is_empty() { &all[..] } else { &args.places[..] };
        let mut found = Vec::new();
        for name in names {
            let name = Path::new(name);
            let stripped = name.strip_prefix("/").unwrap_or(name);
            let path = if stripped == Path::new(".") { dir.clone() } else { dir.join(stripped) };
            let place = PathInImage { image: image.clone(), path };
            for expanded in images.expand(&place, Purpose::Read)? {
                let name = match expanded == place {
                    true => stripped,
                    false => expanded.path.strip_prefix(&dir).unwrap_or(&expanded.path),
                };
                let name = name.components().collect::<PathBuf>();
                found.push(TarMember::new(expanded.path, name));
            }
        }
        return Ok((image, found));
    }
    let mut found: Vec<TarMember> = Vec::new();
    let mut image: Option<PathBuf> = None;
    for text in &args.places {
        let place = images.place(text)?;
        if image.get_or_insert_with(|| place.image.clone()) != &place.image {
            let what = "all members must be in one image";
            return Err(Failure::usage("tar", what));
        }
        for place in images.expand(&place, Purpose::Read)? {
            let name: PathBuf = place.below_root().components().collect();
            found.push(TarMember::new(place.path, name));
        }
    }
    Ok((image.expect("clap wants one"), found))
}

fn create(args: &TarArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("tar", error);
    let mut images = Images::new("tar", &args.write.view);
    let (image, members) = members(args, &mut images)?;
    for TarMember { name, .. } in &members {
        if name.components().any(|part| part == std::path::Component::ParentDir) {
            return Err(Failure::usage("tar", &format!("{}: expected a path without '..'", name.display())));
        }
    }
    let failed = images.failed(&image);
    let fs = images.open(&image, Purpose::Read)?;
    // Missing members are found before the archive is made.
    for TarMember { path, .. } in &members {
        match fs.symlink_metadata(path) {
            Err(error) if !args.ignore_errors => return Err(failed(error)),
            // A name that damage hides may still be found while the archive is made.
            Err(error) if error.kind() == ErrorKind::NotFound => match fs.open_past_damage(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            },
            _ => {}
        }
    }
    if is_image(&args.file) && same_file(&args.file, &image) {
        return Err(told(Error::invalid("the archive is the image itself")));
    }
    if is_stream(&args.file) {
        expect_open().map_err(told)?;
    }
    let losses = Losses::new("tar").reported(args.report.as_deref(), Some(&args.file))?;
    let (names, mut losses) = (args.names(), losses);
    let watched = Watched::image(&image, &names, &losses);
    let progress = TarNamePrinter { verbose: args.verbose, rest: &watched };
    let options = TarOptions { ignore_errors: args.ignore_errors, replace_images: args.force };
    let note = |note: &str| warn(&format!("tar: {note}"));
    if !interrupt::may_wait(&args.file) {
        interrupt::watch();
    }
    interrupt::leaves("no archive was made; an existing file is unchanged");
    if is_stream(&args.file) {
        interrupt::archive_in_place();
    }
    let written = if is_stream(&args.file) {
        let out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
        fs.write_tar(&members).options(options).note(&note).progress(&progress).to(out)
    } else {
        fs.write_tar(&members).options(options).note(&note).progress(&progress).to_file(&args.file)
    };
    losses.read_from(&image, fs);
    let written = written.map_err(|error| match (error.kind(), error.is_on_host()) {
        (ErrorKind::AlreadyExists, true) => failed(error).advise("use --force to replace it"),
        _ => failed(error),
    });
    losses.end(written.and(names.finish()))
}

/// Whether both names refer to one file of the host.
fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        creamery::partitions::ImageName::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
    };
    identity(one).is_some() && identity(one) == identity(other)
}

/// The archive to unpack.
enum Input {
    Plain(Box<dyn Read>),
    Layer(creamery::tar::TarArchive),
}

fn extract(args: &TarArgs) -> Result<(), Failure> {
    let text = match (&args.directory, &args.places[..]) {
        (Some(dir), []) => dir,
        (None, [dir]) => dir,
        _ => return Err(Failure::usage("tar", "expected one directory to unpack to, as IMAGE:/DIR")),
    };
    let told = |error| Failure::new("tar", error);
    let input = if args.oci_whiteouts {
        Input::Layer(archives::open_one("tar", &args.file)?)
    } else if is_stream(&args.file) {
        Input::Plain(Box::new(io::stdin().lock()))
    } else {
        let file = File::open(&args.file).map_err(|error| told(Error::from(error).on_host(&args.file)))?;
        Input::Plain(Box::new(file))
    };
    let mut images = Images::to_write("tar", &args.write);
    let place = images.place(text)?;
    let failed = images.failed(&place.image);
    if !interrupt::may_wait(&args.file) {
        interrupt::watch();
    }
    let any = AtomicBool::new(false);
    let refused = |name: &[u8], error: &Error| {
        any.store(true, Ordering::Relaxed);
        let why = match error.kind() {
            ErrorKind::InvalidData | ErrorKind::InvalidInput => error.without_kind(),
            _ => error.to_string(),
        };
        complain(&with_advice(format!("tar: {}: {why}", Escaped(name)), error));
    };
    let names = args.names();
    let progress = TarNamePrinter { verbose: args.verbose, rest: &names };
    let outcome = images.open(&place.image, Purpose::Write).and_then(|fs| {
        let read = match input {
            Input::Plain(archive) => {
                fs.read_tar(&place.path).failed(&refused).progress(&progress).from(archive)
            }
            Input::Layer(layer) => {
                fs.read_tar(&place.path).failed(&refused).progress(&progress).layer(&layer)
            }
        };
        read.map_err(|error| match error.kind() {
            // The error is about the archive, not the image.
            ErrorKind::InvalidData => {
                let what = format!("{}: {}", args.file.display(), error.without_kind());
                told(Error::invalid(what))
                    .advise("earlier members are unpacked, the last one perhaps in part")
            }
            ErrorKind::Unsupported => told(error.context(args.file.display())).plain(),
            _ => failed(error),
        })
    });
    images.finish(outcome)?;
    names.finish()?;
    if any.into_inner() {
        let error = Error::new(ErrorKind::InvalidData, "some members are missing or incomplete");
        return Err(Failure::new("tar", error).plain());
    }
    Ok(())
}
