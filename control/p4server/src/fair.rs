// SPDX-License-Identifier: Apache-2.0
//! What waits, by the address of its caller, so that no address keeps the others from being served.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Values that wait; at most so many.
#[derive(Debug)]
pub struct Fair<T> {
    most: usize,
    next: u64,
    waiting: HashMap<IpAddr, VecDeque<(u64, T)>>,
    /// How often each address with waiting values was served.
    served: HashMap<IpAddr, u64>,
}

impl<T> Fair<T> {
    pub fn new(most: usize) -> Self {
        Self { most, next: 0, waiting: HashMap::new(), served: HashMap::new() }
    }

    fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Adds a value. Returns its number, and the value that has to leave: the oldest of the address with the
    /// most.
    pub fn push(&mut self, from: IpAddr, value: T) -> (u64, Option<T>) {
        self.next += 1;
        self.waiting.entry(from).or_default().push_back((self.next, value));
        let oldest = |queue: &VecDeque<(u64, T)>| queue.front().map(|(number, _)| *number);
        let leaves = (self.len() > self.most).then(|| {
            let key = |queue: &VecDeque<_>| (queue.len(), std::cmp::Reverse(oldest(queue)));
            let (address, _) = self.waiting.iter().max_by_key(|(_, queue)| key(queue))?;
            let address = *address;
            self.take(address, |queue| queue.pop_front())
        });
        (self.next, leaves.flatten())
    }

    /// Takes the value with this number, if it still waits.
    pub fn remove(&mut self, from: IpAddr, number: u64) -> Option<T> {
        self.take(from, |queue| {
            let at = queue.iter().position(|(waiting, _)| *waiting == number)?;
            queue.remove(at)
        })
    }

    /// Takes the oldest value of the address that was served the least; of several such, the oldest.
    pub fn pop(&mut self) -> Option<T> {
        let key = |(address, queue): &(&IpAddr, &VecDeque<(u64, T)>)| {
            let served = self.served.get(*address).copied().unwrap_or(0);
            (served, queue.front().map(|(number, _)| *number))
        };
        let address = *self.waiting.iter().min_by_key(key)?.0;
        *self.served.entry(address).or_default() += 1;
        self.take(address, |queue| queue.pop_front())
    }

    fn take(
        &mut self,
        from: IpAddr,
        take: impl FnOnce(&mut VecDeque<(u64, T)>) -> Option<(u64, T)>,
    ) -> Option<T> {
        let queue = self.waiting.get_mut(&from)?;
        let taken = take(queue);
        if queue.is_empty() {
            self.waiting.remove(&from);
        }
        if self.waiting.is_empty() {
            // Nobody waits: all are equal again.
            self.served.clear();
        }
        taken.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn address_that_was_served_least_is_next() {
        let mut fair = Fair::new(100);
        (0..20).for_each(|n| assert_eq!(fair.push(address(1), n).1, None));
        assert_eq!((fair.pop(), fair.pop()), (Some(0), Some(1)));
        fair.push(address(2), 100);
        fair.push(address(2), 101);
        fair.push(address(3), 200);
        let order: Vec<_> = std::iter::from_fn(|| fair.pop()).take(6).collect();
        assert_eq!(order, [100, 200, 101, 2, 3, 4]);
    }

    #[test]
    fn oldest_of_the_address_with_the_most_leaves() {
        let mut fair = Fair::new(3);
        assert_eq!(fair.push(address(2), 100).1, None);
        (0..2).for_each(|n| assert_eq!(fair.push(address(1), n).1, None));
        assert_eq!(fair.push(address(1), 2).1, Some(0));
        let (number, left) = fair.push(address(3), 200);
        assert_eq!(left, Some(1));
        assert_eq!(fair.remove(address(3), number), Some(200));
        assert_eq!(fair.remove(address(3), number), None);
        let left: Vec<_> = std::iter::from_fn(|| fair.pop()).collect();
        assert_eq!(left, [100, 2]);
    }
}
