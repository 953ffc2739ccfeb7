//! Panics as values: the message of a thread's panic, and its place.
//!
//! The standard library passes the place to the panic hook alone. So this module puts a hook in front of the existing one. The hook
//! only notes message and place for the panicking thread; the existing one prints as before.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A panic that was caught.
///
/// ```
/// let panic = creamery_base::panics::catch(|| -> u32 { panic!("no bottom") }).unwrap_err();
/// assert_eq!(panic.message, "no bottom");
/// assert!(panic.place.contains(":"), "{panic}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panic {
    /// The panic message.
    pub message: String,
    /// File, line and column.
    pub place: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked at {}: {}", self.place, self.message)
    }
}

thread_local! {
    static LATEST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// Runs `work`. Errors: it panicked. The caller is responsible for state that the panic leaves half changed.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    note_places();
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let noted = LATEST.with_borrow_mut(Option::take);
        noted.unwrap_or_else(|| Panic { message: words(&*payload), place: "an unknown place".to_owned() })
    })
}

/// Returns the panic of the calling thread, while it unwinds. Needs a caller that will [`catch`] it, or a call of
/// [`note_places`] before.
#[must_use]
pub fn dying_of() -> Option<Panic> {
    if std::thread::panicking() { LATEST.with_borrow(Clone::clone) } else { None }
}

/// Starts noting the panics of all threads, for [`dying_of`]. [`catch`] calls it by itself.
pub fn note_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            note(info);
            before(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let panic = Panic { message: words(info.payload()), place };
    // A thread that is ending has no thread-local storage any more, and no caller that would ask.
    let _ = LATEST.try_with(|latest| latest.try_borrow_mut().map(|mut latest| *latest = Some(panic)));
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_words_and_its_place() {
        assert_eq!(catch(|| 7), Ok(7));
        let line = line!() + 1;
        let formatted = catch(|| panic!("{} is too many", 7)).expect_err("it panics");
        assert_eq!(formatted.message, "7 is too many");
        assert!(formatted.place.starts_with(&format!("{}:{line}:", file!())), "{formatted}");
    }

    #[test]
    fn whoever_cleans_up_knows_what_the_thread_dies_of() {
        struct CleansUp(std::sync::mpsc::Sender<Option<Panic>>);
        impl Drop for CleansUp {
            fn drop(&mut self) {
                self.0.send(dying_of()).expect("somebody listens");
            }
        }
        let (send, receive) = std::sync::mpsc::channel();
        let caught = catch(|| {
            let _guard = CleansUp(send);
            panic!("over");
        });
        assert_eq!(receive.recv().expect("it was sent"), caught.err());
        assert_eq!(dying_of(), None);
    }
}
