//! Which extents go while others cannot.

use std::sync::OnceLock;

use aerostat_memory::Governor;
use aerostat_types::ByteSize;

use super::*;
use crate::files::disk::SystemDisk;

const BYTES: u64 = 1 << 20;

/// An entry whose extents have [`BYTES`] each.
struct Fake {
    image: OnceLock<Arc<Image>>,
    there: Mutex<Vec<bool>>,
    /// Somebody reads something of it back.
    is_busy: AtomicBool,
}

impl Fake {
    fn new(evictor: &Arc<Evictor>, extents: usize) -> Arc<Fake> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let image = evictor.image(disk, PathBuf::from("image"), 0, extents);
        let fake = Arc::new(Fake {
            image: OnceLock::from(image),
            there: Mutex::new(vec![true; extents]),
            is_busy: AtomicBool::new(false),
        });
        let entry: Arc<dyn Evictable> = Arc::clone(&fake) as Arc<dyn Evictable>;
        let image = fake.image.get().unwrap();
        evictor.admit(&entry, image, &ExtentSet::all(extents));
        fake
    }

    fn used_often(&self) {
        let image = self.image.get().unwrap();
        let all = ExtentSet::all(self.there.lock().len());
        (0..USES_MAX).for_each(|_| image.used(&all));
    }
}

impl Evictable for Fake {
    fn image(&self) -> Option<&Arc<Image>> {
        self.image.get()
    }

    fn extent_bytes(&self) -> Vec<u64> {
        vec![BYTES; self.there.lock().len()]
    }

    fn has_extent(&self, extent: usize) -> bool {
        self.there.lock()[extent]
    }

    fn evict(&self, extents: &ExtentSet) -> bool {
        if self.is_busy.load(Ordering::Relaxed) {
            return false;
        }
        let mut there = self.there.lock();
        let mut gone = extents.iter().filter(|at| std::mem::take(&mut there[*at]));
        gone.by_ref().count() > 0
    }

    fn evicted_bytes(&self) -> u64 {
        let there = self.there.lock();
        BYTES * there.iter().filter(|there| !**there).count() as u64
    }
}

fn evictor() -> Arc<Evictor> {
    let budget = Governor::new(ByteSize(1 << 30)).budget("test", None);
    Evictor::new(budget, Arc::new(aerostat_types::SystemClock))
}

#[test]
fn what_is_read_back_does_not_stand_before_what_could_go() {
    let evictor = evictor();
    // In the main queue once the policy has come by it; the other is in the small one.
    let often = Fake::new(&evictor, 1);
    often.used_often();
    let read = Fake::new(&evictor, 3);
    read.is_busy.store(true, Ordering::Relaxed);
    assert_eq!(evictor.evict(1), BYTES);
    assert!(!often.has_extent(0));
    assert_eq!(evictor.evict(1), 0, "all that is left is busy");
    // It is not forgotten.
    read.is_busy.store(false, Ordering::Relaxed);
    assert_eq!(evictor.evict(2 * BYTES), 2 * BYTES);
    assert_eq!(evictor.evict(u64::MAX), BYTES);
    assert_eq!(evictor.queues.lock().bytes(), 0);
}
