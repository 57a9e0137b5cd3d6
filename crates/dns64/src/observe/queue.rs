//! A bounded queue of records to write. Senders never block. Items that do not fit are dropped, and
//! the sender counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// An item whose heap memory is counted while it is in a queue.
pub(crate) trait HeapSize {
    /// Returns the number of octets of heap memory that the item uses.
    fn octets(&self) -> usize;
}

/// Sending end of the queue; one per sending thread.
pub(crate) struct QueueSender<T> {
    sender: SyncSender<T>,
    /// Total number of heap octets used by the queued items.
    waiting: Arc<AtomicUsize>,
    most: usize,
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> QueueSender<T> {
        let (sender, waiting) = (self.sender.clone(), Arc::clone(&self.waiting));
        QueueSender { sender, waiting, most: self.most }
    }
}

/// Receiving end of the queue, for the writing thread.
pub(crate) struct QueueReceiver<T> {
    receiver: Receiver<T>,
    waiting: Arc<AtomicUsize>,
}

/// Result of waiting for an item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    /// The oldest item in the queue.
    One(T),
    /// No item arrived within the time limit.
    Nothing,
    /// All senders have been dropped.
    Over,
}

/// Creates a queue for at most `places` items, which may use at most `octets` octets of heap memory in total.
pub(crate) fn queue<T>(places: usize, octets: usize) -> (QueueSender<T>, QueueReceiver<T>) {
    let (sender, receiver) = sync_channel(places);
    let waiting = Arc::new(AtomicUsize::new(0));
    let inlet = QueueSender { sender, waiting: Arc::clone(&waiting), most: octets };
    (inlet, QueueReceiver { receiver, waiting })
}

impl<T: HeapSize> QueueSender<T> {
    /// Queues an item. Returns false if the queue is full.
    pub(crate) fn put(&self, one: T) -> bool {
        let octets = one.octets();
        let before = self.waiting.fetch_add(octets, Ordering::Relaxed);
        let is_in = before + octets <= self.most && self.sender.try_send(one).is_ok();
        if !is_in {
            self.waiting.fetch_sub(octets, Ordering::Relaxed);
        }
        is_in
    }
}

impl<T: HeapSize> QueueReceiver<T> {
    /// Returns the next item. If the queue is empty, waits at most the time `patience` for an item.
    pub(crate) fn next(&self, patience: Duration) -> Received<T> {
        match self.receiver.recv_timeout(patience) {
            Ok(one) => {
                self.waiting.fetch_sub(one.octets(), Ordering::Relaxed);
                Received::One(one)
            }
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HeapSize for Vec<u8> {
        fn octets(&self) -> usize {
            self.len()
        }
    }

    const SOON: Duration = Duration::from_secs(30);
    const NOW: Duration = Duration::ZERO;

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let (inlet, outlet) = queue(3, 10);
        assert!(inlet.put(vec![1; 4]) && inlet.put(vec![2; 6]));
        assert!(!inlet.put(vec![3; 1]), "ten octets");
        assert!(inlet.put(vec![]) && !inlet.put(vec![]), "three places");
        assert_eq!(outlet.next(SOON), Received::One(vec![1; 4]));
        assert!(!inlet.clone().put(vec![4; 5]) && inlet.clone().put(vec![4; 4]));
        for expected in [vec![2; 6], vec![], vec![4; 4]] {
            assert_eq!(outlet.next(SOON), Received::One(expected));
        }
        assert_eq!(outlet.next(NOW), Received::Nothing);
        assert!(inlet.put(vec![5; 10]));
        drop(inlet);
        assert_eq!(outlet.next(SOON), Received::One(vec![5; 10]));
        assert_eq!(outlet.next(SOON), Received::Over);
    }
}
