//! A table whose pages are read and written past the page cache, many at once, by a program with one thread.
//!
//! The first half keeps many writes in flight, and waits for the oldest one before it starts another. The second half awaits
//! reads, all at once, with its own executor: any other one works, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use creamery::device::direct::{DirectAt, DirectDone, DirectRequest, Started};
use creamery::device::{AlignedBuffer, MemoryDevice};
use creamery::{File, Image, OpenOptions, Result};

const PAGE: usize = 16 << 10;
const PAGES: u64 = 1000;
const IN_FLIGHT: usize = 64;

/// Where a page lies in the file.
fn place(page: u64) -> u64 {
    page * PAGE as u64
}

/// The bytes of a page begin with its number.
fn fill(page: u64, mut buffer: AlignedBuffer) -> AlignedBuffer {
    buffer[..8].copy_from_slice(&page.to_le_bytes());
    buffer
}

/// Writes all pages, `IN_FLIGHT` at once, from as many buffers.
fn write(table: &File) -> Result<()> {
    let mut in_flight: VecDeque<Started> = VecDeque::new();
    let mut spare: Vec<_> = (0..IN_FLIGHT).map(|_| AlignedBuffer::zeroed(PAGE)).collect();
    for page in 0..PAGES {
        let buffer = match spare.pop() {
            Some(buffer) => buffer,
            None => written(in_flight.pop_front().expect("no buffer is spare"))?,
        };
        let at = DirectAt::Offset(place(page));
        in_flight.push_back(table.start(DirectRequest::Write { at, data: fill(page, buffer) }));
    }
    in_flight.into_iter().try_for_each(|started| written(started).map(drop))
}

/// Returns the buffer of a finished write.
fn written(started: Started) -> Result<AlignedBuffer> {
    let DirectDone { buffer, outcome } = started.wait();
    let part = outcome?;
    assert_eq!(part.len, PAGE, "there is room");
    Ok(buffer)
}

/// Reads the number that a page begins with.
async fn read(table: &File, page: u64) -> Result<u64> {
    let request = DirectRequest::Read { offset: place(page), buffer: AlignedBuffer::zeroed(PAGE) };
    let DirectDone { buffer, outcome } = table.start(request).await;
    outcome?;
    Ok(u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes")))
}

/// Wakes the thread of the executor.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Executes all futures on this thread, which sleeps while all of them wait.
fn join<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut left: Vec<_> = futures.map(Box::pin).collect();
    let mut results = Vec::new();
    loop {
        left.retain_mut(|future| match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => {
                results.push(result);
                false
            }
            Poll::Pending => true,
        });
        if left.is_empty() {
            return results;
        }
        thread::park();
    }
}

pub(crate) fn main() -> Result<()> {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    Image::make_on(Arc::clone(&device) as _).run()?;
    let fs = Image::options().write().open_device(device)?;
    let table = OpenOptions::new().read(true).write(true).create_new(true).open(&fs, "/table")?;
    // A write that makes the file longer locks it exclusively, so the file gets its length first.
    table.set_len(place(PAGES))?;
    write(&table)?;
    table.sync_data()?;
    for first in (0..PAGES).step_by(IN_FLIGHT) {
        let pages = first..PAGES.min(first + IN_FLIGHT as u64);
        let mut read: Vec<u64> =
            join(pages.clone().map(|page| read(&table, page))).into_iter().collect::<Result<_>>()?;
        read.sort_unstable();
        assert!(pages.eq(read), "each page is there once");
    }
    println!("{:?}", fs.statistics().direct);
    fs.close()
}
