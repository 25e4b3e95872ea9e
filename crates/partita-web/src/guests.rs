//! Who is connected over HTTP, and who has to go so that another can come: a newcomer never waits, or a health check would.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partita_hub::server::neighbourhood;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// How many clients are served at once, if the system has files for so many.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// The part of them that one address may have; this machine's own may have all.
const ADDRESS_PART: usize = 4;
/// Who was cut keeps its socket for a moment more. So many of them, and no more, may be beside those that are served.
const LEAVING_MAX: usize = 4;

/// The clients of all listeners.
#[derive(Debug)]
pub(crate) struct Guests {
    connections_max: usize,
    /// The sockets there may be, those of clients that were cut included.
    sockets: Arc<Semaphore>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    facts: Facts,
    task: AbortHandle,
}

/// What decides whether a client has to go.
#[derive(Clone, Debug)]
struct Facts {
    address: IpAddr,
    /// Whether a request of it is being answered.
    busy: Arc<AtomicBool>,
}

impl Guests {
    pub(crate) fn new(connections_max: usize) -> Self {
        let connections_max = connections_max.max(1);
        let sockets = Arc::new(Semaphore::new(connections_max + LEAVING_MAX));
        Self { connections_max, sockets, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be another socket, which is until a client that was cut is gone.
    pub(crate) async fn socket(&self) -> OwnedSemaphorePermit {
        let Ok(permit) = self.sockets.clone().acquire_owned().await else { unreachable!("never closed") };
        permit
    }

    /// Makes room for a client and lets `spawn` begin to serve it. What it is given goes when the client does.
    pub(crate) fn welcome(
        self: &Arc<Self>,
        address: IpAddr,
        spawn: impl FnOnce(GuestPlace, Arc<AtomicBool>) -> AbortHandle,
    ) {
        let address = neighbourhood(address);
        let id = self.make_room(address);
        let (busy, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        // Not under the lock: a runtime that ends drops what it is given at once, and the place with it.
        let task = spawn(GuestPlace { id, gone: gone.clone(), guests: self.clone() }, busy.clone());
        let mut book = self.book();
        if !gone.load(Ordering::Acquire) {
            book.guests.insert(id, Guest { facts: Facts { address, busy }, task });
        }
    }

    /// Cuts whoever has to go, and gives the newcomer its number.
    fn make_room(&self, address: IpAddr) -> u64 {
        let mut book = self.book();
        let facts = book.guests.iter().map(|(id, guest)| (*id, &guest.facts));
        if let Some(id) = who_goes(facts, address, self.connections_max)
            && let Some(guest) = book.guests.remove(&id)
        {
            tracing::debug!(from = %guest.facts.address, "an HTTP connection is cut: others wait");
            guest.task.abort();
        }
        book.last += 1;
        book.last
    }
}

/// A client's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct GuestPlace {
    id: u64,
    gone: Arc<AtomicBool>,
    guests: Arc<Guests>,
}

impl Drop for GuestPlace {
    fn drop(&mut self) {
        let mut book = self.guests.book();
        self.gone.store(true, Ordering::Release);
        book.guests.remove(&self.id);
    }
}

/// Who has to go so that a client of this address can come, oldest first, pure. Of an address that has as many as it may: one
/// of its own. If all places are taken: one of the address that has most. Who waits for an answer goes last.
fn who_goes<'a>(
    guests: impl Iterator<Item = (u64, &'a Facts)> + Clone,
    newcomer: IpAddr,
    max: usize,
) -> Option<u64> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    guests.clone().for_each(|(_, facts)| *counts.entry(facts.address).or_default() += 1);
    let own = counts.get(&newcomer).copied().unwrap_or_default();
    let from = if !newcomer.is_loopback() && own >= (max / ADDRESS_PART).max(1) {
        newcomer
    } else if counts.values().sum::<usize>() >= max {
        // Of addresses with as many, always the same one.
        *counts.iter().max_by_key(|(address, count)| (**count, **address)).map(|(address, _)| address)?
    } else {
        return None;
    };
    let of_it = guests.filter(|(_, facts)| facts.address == from);
    of_it.min_by_key(|(id, facts)| (facts.busy.load(Ordering::Acquire), *id)).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(address: &str, busy: bool) -> Facts {
        Facts { address: address.parse().unwrap(), busy: Arc::new(AtomicBool::new(busy)) }
    }

    fn goes(guests: &[Facts], newcomer: &str, max: usize) -> Option<u64> {
        let guests = guests.iter().enumerate().map(|(id, facts)| (id as u64, facts));
        who_goes(guests, newcomer.parse().unwrap(), max)
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_idle_one_of_the_largest_crowd() {
        let one = facts("192.0.2.1", false);
        let crowd = || vec![facts("192.0.2.2", true), facts("192.0.2.2", false), facts("192.0.2.2", false)];
        let guests = [vec![one.clone()], crowd()].concat();
        assert_eq!(goes(&guests, "192.0.2.3", 16), None, "there is room");
        assert_eq!(goes(&guests, "192.0.2.3", 4), Some(2), "the oldest of the crowd that waits for nothing");
        assert_eq!(goes(&[one.clone(), facts("192.0.2.1", true)], "192.0.2.3", 2), Some(0));
        let busy = [facts("127.0.0.1", true), facts("127.0.0.1", true)];
        assert_eq!(goes(&busy, "127.0.0.1", 2), Some(0), "if all wait for an answer: the oldest");
    }

    #[test]
    fn an_address_has_a_part_of_the_places_and_this_machine_all() {
        let of = |address: &str, count: usize| vec![facts(address, false); count];
        assert_eq!(goes(&of("192.0.2.2", 4), "192.0.2.2", 16), Some(0));
        assert_eq!(goes(&of("192.0.2.2", 3), "192.0.2.2", 16), None);
        assert_eq!(goes(&of("127.0.0.1", 15), "127.0.0.1", 16), None);
        assert_eq!(goes(&of("127.0.0.1", 16), "127.0.0.1", 16), Some(0));
    }
}
