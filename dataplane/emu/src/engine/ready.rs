// SPDX-License-Identifier: Apache-2.0
//! The pipes that a release visits.

/// Pipes to visit, in order; each once.
#[derive(Debug)]
pub(super) struct Ready {
    /// Those from `next` on.
    queue: Vec<u32>,
    next: usize,
    /// By pipe.
    is_ready: Vec<bool>,
}

impl Ready {
    /// For so many pipes.
    pub(super) fn new(pipes: usize) -> Self {
        // Half of it is free for pipes that are visited again.
        Self { queue: Vec::with_capacity(2 * pipes), next: 0, is_ready: vec![false; pipes] }
    }

    /// The number of pipes that there is room for.
    pub(super) fn room(&self) -> usize {
        self.is_ready.len()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn contains(&self, pipe: u32) -> bool {
        self.is_ready[pipe as usize]
    }

    /// Adds a pipe, if it is not there. Returns whether there is such a pipe.
    #[inline]
    pub(super) fn add(&mut self, pipe: u32) -> bool {
        let Some(is_ready) = self.is_ready.get_mut(pipe as usize) else { return false };
        if !std::mem::replace(is_ready, true) {
            self.again(pipe);
        }
        true
    }

    /// The pipe so many places behind the next one.
    #[inline]
    pub(super) fn ahead(&self, places: usize) -> Option<u32> {
        self.queue.get(self.next + places).copied()
    }

    /// The next pipes, up to `count`.
    pub(super) fn upcoming(&self, count: usize) -> &[u32] {
        let pipes = &self.queue[self.next..];
        &pipes[..count.min(pipes.len())]
    }

    /// The next pipe. After the visit the caller calls [`Ready::again`] or [`Ready::leave`] for it.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        let pipe = self.queue.get(self.next).copied();
        self.next += usize::from(pipe.is_some());
        pipe
    }

    /// The pipe that was next is the next one again.
    pub(super) fn back(&mut self) {
        self.next -= 1;
    }

    /// The pipe that was next need not be visited again.
    #[inline]
    pub(super) fn leave(&mut self, pipe: u32) {
        self.is_ready[pipe as usize] = false;
    }

    /// The pipe that was next is visited again, after the others.
    #[inline]
    pub(super) fn again(&mut self, pipe: u32) {
        if self.queue.len() == self.queue.capacity() {
            self.make_room();
        }
        self.queue.push(pipe);
    }

    /// Removes the pipes that were visited.
    #[inline(never)]
    fn make_room(&mut self) {
        self.queue.drain(..self.next);
        self.next = 0;
    }

    /// Begins the queue at its start again if it is empty, so that it stays in few lines of the cache.
    #[inline]
    pub(super) fn rewind(&mut self) {
        if self.is_empty() {
            self.queue.clear();
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn pipes_come_in_order_without_growth() {
        let pipes = 10;
        let mut ready = Ready::new(pipes);
        let room = ready.queue.capacity();
        let mut model = VecDeque::new();
        // Many are visited again, some leave and come back.
        for turn in 0..10_000_u32 {
            let added = turn * 7 % pipes as u32;
            if !model.contains(&added) {
                model.push_back(added);
            }
            assert!(ready.add(added));
            for visit in 0..turn % 4 {
                assert_eq!(ready.ahead(1), model.get(1).copied());
                let next = ready.next();
                assert_eq!(next, model.pop_front());
                let Some(pipe) = next else { continue };
                if (turn + visit) % 3 == 0 {
                    ready.leave(pipe);
                } else {
                    ready.again(pipe);
                    model.push_back(pipe);
                }
                assert_eq!(ready.contains(pipe), model.contains(&pipe));
            }
            assert_eq!(ready.len(), model.len());
        }
        assert!(!ready.add(pipes as u32));
        assert_eq!(ready.queue.capacity(), room);
    }
}
