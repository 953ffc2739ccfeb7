//! `creamery mount` and `umount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use creamery::Error;
use creamery::partitions::ImageName;
use creamery_mount::{How, Options, Unmounted, Unmounter};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, warn};
use crate::images::{warn_of, with_way_in};
use crate::log::{Log, say};
use crate::view::DeviceArgs;
use crate::waits;

/// Output of the serving process once the mount answers.
const READY: &[u8] = b"mounted\n";

/// Mount an image.
///
/// The filesystem is read-write unless -o ro is given. The command returns once the mount answers. Its server runs in
/// the background until `creamery umount DIR` or SIGTERM. It writes errors to its log: a file in
/// $XDG_STATE_HOME/creamery, else in /var/log/creamery or /run/creamery for root, in ~/.local/state/creamery or
/// $XDG_RUNTIME_DIR/creamery for others. `creamery stats DIR` prints its path. A mount that ends well leaves no log.
///
/// `creamery help mount-options` lists all options. Used most: ro, subvol=PATH, compress=zstd, discard=async, commit=SECONDS,
/// noatime, allow_other, fakeroot, and for damaged images ro,rescue=WORD.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountArgs {
    /// Image file or block device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,

    /// Where to mount it.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Mount options, with commas between; may be given several times.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<OsString>,

    #[command(flatten)]
    pub(crate) set: DeviceArgs,

    /// Stay in the foreground.
    #[arg(short = 'F', long)]
    pub(crate) foreground: bool,

    /// Print more.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Say so on standard output when the mount answers, then let go of the terminal.
    #[arg(long, hide = true)]
    pub(crate) announce: bool,

    /// Ignore unknown options.
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
}

/// Unmount, and return when the image is closed and durable.
///
/// The exit status is 0 when all changes are in the image. Otherwise it is unmounted, too, and the message says which
/// changes are lost, why, and where the log is.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct UmountArgs {
    /// The mount point, or the mounted image.
    #[arg(value_name = "DIR|IMAGE")]
    pub(crate) place: PathBuf,

    /// Detach the mount now, even if it is in use; the image is closed when the last user is gone.
    #[arg(short = 'l', long)]
    pub(crate) lazy: bool,
}

/// `creamery mount`.
pub(crate) fn run(args: &MountArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new("mount", error);
    let options = parse_options(args).map_err(failed)?;
    // The background process parses these options again.
    if !args.announce {
        options.notes.iter().for_each(|note| warn(note));
    }
    if options.remount {
        return creamery_mount::remount(&args.dir, &options).map_err(failed);
    }
    if !args.announce
        && let Some(what) = creamery_mount::clear_dead(&args.dir).map_err(|error| failed(error).plain())?
    {
        warn(&what);
    }
    if !args.foreground {
        return start_in_background(args).map_err(failed);
    }
    let is_number = options.subvolid.is_some() && ImageName::metadata(&args.image).is_ok();
    serve(args).map_err(failed).map_err(|failure| if is_number { failure.of_number() } else { failure })
}

/// `creamery umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let how = if args.lazy { How::Lazy } else { How::WhenIdle };
    let left = creamery_mount::unmount(&args.place, how).map_err(|error| Failure::new("umount", error))?;
    let place = args.place.display();
    match left {
        Unmounted::Closed | Unmounted::Part => {}
        Unmounted::StillAt(point) => warn(&format!(
            "{place}: the image is still mounted at {}; all changes are durable",
            point.display()
        )),
        Unmounted::StillElsewhere => warn(&format!(
            "{place}: the image is still mounted in another mount namespace; it is closed when that ends"
        )),
    }
    Ok(())
}

pub(crate) fn parse_options(args: &MountArgs) -> Result<Options, Error> {
    let source = std::path::absolute(&args.image).unwrap_or_else(|_| args.image.clone());
    let source = source.to_str().ok_or_else(|| Error::invalid("image path is not UTF-8"))?;
    let mut lists = Vec::new();
    for list in &args.options {
        lists.push(list.to_str().ok_or_else(|| Error::invalid("mount options are not UTF-8"))?);
    }
    let mut options = match args.sloppy {
        true => Options::parse_sloppy(source, lists)?,
        false => Options::parse(source, lists)?,
    };
    args.set.add_to(&mut options);
    Ok(options)
}

/// Mounts, and serves requests until the filesystem is unmounted or a signal ends the process. Messages go to standard error, which is the
/// log file in the background.
fn serve(args: &MountArgs) -> Result<(), Error> {
    let mut options = parse_options(args)?;
    let image = std::path::absolute(&args.image)?;
    let dir = args.dir.canonicalize().map_err(|error| about(&args.dir, error))?;
    let is_asked = options.transport.read_only();
    let opened = creamery_mount::open(&args.image, &mut options);
    let fs = opened.map_err(|error| with_way_in(&options.set(&args.image), error))?;
    // The warning goes out here, while there is a terminal.
    if options.transport.read_only() && !is_asked {
        warn_of(&image, "a seed device: mounted read-only");
    }
    fs.engine().volume().notes().iter().for_each(|note| warn_of(&image, note));
    let of_image = |error: Error| match error.is_on_host() {
        true => error,
        false => error.context(args.image.display()),
    };
    if let Some(note) =
        creamery_mount::why_mounter_makes_nothing(&fs, &options, &args.dir).map_err(of_image)?
    {
        warn_of(&image, &note);
    }
    // The log is created first because the mount may hide its directory.
    let log = if args.announce { Log::make(&image) } else { None };
    options.state = crate::state::dir().ok();
    options.log = match (&log, args.announce) {
        (Some(log), _) => Some(log.path.display().to_string()),
        (None, true) => None,
        (None, false) => Some("standard error of the server".to_owned()),
    };
    // From here on no signal kills: a mount without its server would stay.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mounted = creamery_mount::mount(fs, &dir, &options).inspect_err(|_| forget(log.as_ref()));
    let mut mounted = mounted.map_err(of_image)?;
    end_on_signals(signals, mounted.unmounter(), &image);
    let of_mount = image.clone();
    mounted.tell(move |what| say(&of_mount, what));
    if args.announce {
        announce(log.as_ref())?;
    }
    mounted.when_it_ends_well(move || forget(log.as_ref()));
    mounted.serve().map_err(|error| about_end(&image, error))
}

/// Removes an empty log.
fn forget(log: Option<&Log>) {
    if let Some(log) = log {
        log.forget();
    }
}

/// Unmounts on each signal, also on a signal that came earlier.
fn end_on_signals(mut signals: Signals, unmounter: Unmounter, image: &Path) {
    let image = image.to_owned();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if let Err(error) = unmounter.unmount() {
                say(&image, &format!("a signal could not unmount it, send another to retry: {error}"));
            }
        }
    });
}

/// Tells the parent process that the mount answers, and detaches from the terminal. Later messages go to the log.
fn announce(log: Option<&Log>) -> Result<(), Error> {
    use std::io::Write;
    // This fails if a shell with job control started the process, which is a group leader then; it stays in its session.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let mut out = std::io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(log.map_or(&null, |log| &log.file)).map_err(std::io::Error::from)?;
    Ok(())
}

/// Starts this program again to serve the mount, and returns when the mount answers. If the server ends earlier, it has printed its error,
/// and this process exits with its status.
fn start_in_background(args: &MountArgs) -> Result<(), Error> {
    let program = std::env::current_exe()?;
    let mut command = std::process::Command::new(program);
    command.args(["mount", "--foreground", "--announce"]);
    if args.sloppy {
        command.arg("--sloppy");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    command.args(args.set.words());
    command.args(waits::words().into_iter().flatten());
    command.arg("--").arg(&args.image).arg(&args.dir);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    let mut out = child.stdout.take().expect("its output is piped");
    std::io::Read::read_to_end(&mut out, &mut said)?;
    if said == READY {
        return Ok(());
    }
    let status = child.wait()?;
    std::process::exit(status.code().unwrap_or(1)); // the server printed its error
}

/// Writes to the log, with the time, that the end was not clean. Returns the error for the exit status.
fn about_end(image: &Path, error: Error) -> Error {
    let error = error.context(image.display());
    say(image, "ended; some changes are not durable");
    error
}

fn about(path: &Path, error: std::io::Error) -> Error {
    Error::from(error).context(path.display())
}
