//! What `bench data` does: scenes, each a few steps on one image that is opened or mounted anew for each.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// What is left of a file in a quick run.
const QUICK: u64 = 64;

/// The image that a scene begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Nothing in it.
    Empty,
    /// A file of so many bytes, and a snapshot of it: the kernel has made both.
    Snapshot(u64),
}

/// Steps in a row on one image.
pub(super) struct DataScene {
    pub(super) name: &'static str,
    pub(super) start: Start,
    pub(super) steps: &'static [DataStep],
    /// What reads back at the end.
    pub(super) ends: &'static [DataStep],
    /// Whether a server that keeps nothing can play it.
    pub(super) null: bool,
}

/// One run of `creamery-bench`.
#[derive(Clone, Copy)]
pub(super) struct DataStep {
    /// In the table, behind the scene's name.
    pub(super) name: &'static str,
    pub(super) work: DataWorkload,
}

/// Its workload.
#[derive(Clone, Copy)]
pub(super) enum DataWorkload {
    Data(DataWork),
    /// On a tree of files, by name.
    Tree(&'static str),
}

/// Work on the content of files.
#[derive(Clone, Copy)]
pub(super) struct DataWork {
    workload: &'static str,
    /// Of each thread's file.
    bytes: u64,
    pub(super) piece: u64,
    threads: u64,
    random: bool,
    pub(super) sync_every: u64,
    generation: u64,
    below: &'static str,
}

impl DataStep {
    const fn data(name: &'static str, workload: &'static str, bytes: u64, piece: u64) -> Self {
        let (threads, random, sync_every, generation, below) = (1, false, 0, 0, "");
        let data = DataWork { workload, bytes, piece, threads, random, sync_every, generation, below };
        Self { name, work: DataWorkload::Data(data) }
    }

    const fn tree(name: &'static str, workload: &'static str) -> Self {
        Self { name, work: DataWorkload::Tree(workload) }
    }

    /// Reads back what must be there.
    const fn verify(bytes: u64, generation: u64) -> Self {
        Self::data("verify", "verify", bytes, MIB).generation(generation)
    }

    const fn random(self) -> Self {
        match self.work {
            DataWorkload::Data(data) => {
                Self { work: DataWorkload::Data(DataWork { random: true, ..data }), ..self }
            }
            DataWorkload::Tree(_) => self,
        }
    }

    const fn threads(self, threads: u64) -> Self {
        match self.work {
            DataWorkload::Data(data) => {
                Self { work: DataWorkload::Data(DataWork { threads, ..data }), ..self }
            }
            DataWorkload::Tree(_) => self,
        }
    }

    const fn sync_every(self, sync_every: u64) -> Self {
        match self.work {
            DataWorkload::Data(data) => {
                Self { work: DataWorkload::Data(DataWork { sync_every, ..data }), ..self }
            }
            DataWorkload::Tree(_) => self,
        }
    }

    const fn generation(self, generation: u64) -> Self {
        match self.work {
            DataWorkload::Data(data) => {
                Self { work: DataWorkload::Data(DataWork { generation, ..data }), ..self }
            }
            DataWorkload::Tree(_) => self,
        }
    }

    const fn below(self, below: &'static str) -> Self {
        match self.work {
            DataWorkload::Data(data) => Self { work: DataWorkload::Data(DataWork { below, ..data }), ..self },
            DataWorkload::Tree(_) => self,
        }
    }
}

impl DataWork {
    /// A file that the kernel writes before it makes a snapshot.
    pub(super) const fn before_snapshot(bytes: u64) -> Self {
        match DataStep::data("", "write", bytes, MIB).work {
            DataWorkload::Data(data) => data,
            DataWorkload::Tree(_) => unreachable!(),
        }
    }

    /// The workload, and the options that say the rest.
    pub(super) fn words(&self, quick: bool) -> (&'static str, Vec<(&'static str, String)>) {
        let Self { workload, bytes, piece, threads, random, sync_every, generation, below } = *self;
        // All pieces of one file are of this size or of MIB: a file of whole MIBs suits them all, but appending needs less.
        let bytes = match quick {
            true if bytes >= QUICK * MIB => bytes / QUICK,
            true => bytes.min(4 * piece),
            false => bytes,
        };
        let order = if random { "random" } else { "sequential" };
        let mut words = vec![
            ("--bytes", bytes.to_string()),
            ("--piece", piece.min(bytes).to_string()),
            ("--threads", threads.to_string()),
            ("--order", order.to_owned()),
            ("--sync-every", sync_every.to_string()),
            ("--generation", generation.to_string()),
        ];
        if !below.is_empty() {
            words.push(("--below", below.to_owned()));
        }
        (workload, words)
    }
}

/// A file written, read and overwritten in pieces of one size.
macro_rules! pieces {
    ($name:literal, $piece:expr, $bytes:expr, $reads:literal, $($random:ident)?) => {
        DataScene {
            name: $name,
            start: Start::Empty,
            steps: &[
                DataStep::data("written", "write", $bytes, $piece),
                DataStep::data(concat!("read ", $reads, ", cold"), "read", $bytes, $piece)$(.$random())?,
                DataStep::data(concat!("read ", $reads, ", warm"), "read-warm", $bytes, $piece)$(.$random())?,
                DataStep::data("overwritten", "overwrite", $bytes, $piece).generation(1),
            ],
            ends: &[DataStep::verify($bytes, 1)],
            null: true,
        }
    };
}

/// Each thread appends 4 KiB to a file of its own, and makes it durable.
macro_rules! appends {
    ($name:literal, $threads:literal, $pieces:literal) => {
        DataScene {
            name: $name,
            start: Start::Empty,
            steps: &[DataStep::data("4 KiB and fsync", "write", $pieces * 4 * KIB, 4 * KIB)
                .threads($threads)
                .sync_every(1)],
            ends: &[DataStep::data("verify", "verify", $pieces * 4 * KIB, 4 * KIB).threads($threads)],
            null: true,
        }
    };
}

/// Overwriting what a snapshot keeps.
macro_rules! snapshot {
    ($name:literal, $piece:expr, $order:literal, $($random:ident)?) => {
        DataScene {
            name: $name,
            start: Start::Snapshot(SHARED),
            steps: &[DataStep::data($order, "overwrite", SHARED, $piece).generation(1)$(.$random())?],
            ends: &[DataStep::verify(SHARED, 1), DataStep::verify(SHARED, 0).below("snapshot")],
            null: false,
        }
    };
}

const SHARED: u64 = 256 * MIB;
const FRAGMENTED: u64 = 64 * MIB;

pub(super) const SCENES: [DataScene; 10] = [
    pieces!("4 KiB pieces", 4 * KIB, 256 * MIB, "at random", random),
    pieces!("128 KiB pieces", 128 * KIB, 512 * MIB, "in order",),
    pieces!("1 MiB pieces", MIB, 512 * MIB, "in order",),
    appends!("appended by 1 thread", 1, 4096),
    appends!("appended by 8 threads", 8, 1024),
    appends!("appended by 64 threads", 64, 256),
    DataScene {
        name: "fragmented file",
        start: Start::Empty,
        steps: &[
            DataStep::data("written, 4 KiB at random, fsync after 64", "write", FRAGMENTED, 4 * KIB)
                .random()
                .sync_every(64),
            DataStep::data("read whole, 128 KiB pieces", "read", FRAGMENTED, 128 * KIB),
            DataStep::data("overwritten, 128 KiB pieces", "overwrite", FRAGMENTED, 128 * KIB).generation(1),
        ],
        ends: &[DataStep::verify(FRAGMENTED, 1)],
        null: false,
    },
    snapshot!("overwritten under a snapshot", 4 * KIB, "4 KiB at random", random),
    snapshot!("overwritten under a snapshot", 128 * KIB, "128 KiB in order",),
    DataScene {
        name: "tree of files",
        start: Start::Empty,
        steps: &[
            DataStep::tree("copied in", "copy-in"),
            DataStep::tree("listed, with attributes", "walk"),
            DataStep::tree("copied out", "copy-out"),
            DataStep::tree("deleted", "remove"),
        ],
        ends: &[],
        null: false,
    },
];

#[cfg(test)]
mod tests {
    use super::{DataWorkload, SCENES, Start};

    #[test]
    fn in_a_quick_run_as_in_a_whole_one_the_steps_of_a_scene_mean_the_same_files() {
        for scene in &SCENES {
            for quick in [false, true] {
                let all = scene.steps.iter().chain(scene.ends);
                let sizes: Vec<(String, String)> = all
                    .filter_map(|step| match step.work {
                        DataWorkload::Data(data) => Some(data.words(quick).1),
                        DataWorkload::Tree(_) => None,
                    })
                    .map(|words| (words[0].1.clone(), words[2].1.clone()))
                    .collect();
                assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "{}: {sizes:?}", scene.name);
                let shared = super::DataWork::before_snapshot(super::SHARED).words(quick).1;
                assert!(scene.start == Start::Empty || sizes[0].0 == shared[0].1, "{}", scene.name);
            }
        }
    }
}
