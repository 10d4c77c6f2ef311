// Package collect removes images that no container uses: when their disk fills up, when
// they have not been used for long, and when the node is under disk pressure (document 3,
// section 8).
package collect

import (
	"cmp"
	"slices"
	"time"
)

// Image is an image of the runtime.
type Image struct {
	ID   string
	Size int64 // in bytes
	// Pinned images are never removed.
	Pinned bool
}

// record is what is known of an image.
type record struct {
	image Image
	// seen is when it was first listed, used when a container used it last.
	seen, used time.Time
	inUse      bool
}

// Records remember since when images are there, and when they were used last. They have
// neither a clock nor I/O.
type Records struct {
	all map[string]*record
	// began is the time of the first update.
	began time.Time
}

// Update replaces the images of the runtime. used are the IDs of those that containers
// use. Images of the first update are older than any minimum age; their maximum age counts
// from this update.
func (r *Records) Update(now time.Time, images []Image, used map[string]bool) {
	since := now
	if r.all == nil {
		since, r.began = time.Time{}, now
	}
	next := map[string]*record{}
	for _, image := range images {
		known := &record{seen: since}
		if before := r.all[image.ID]; before != nil {
			known = before
		}
		known.image, known.inUse = image, used[image.ID]
		if known.inUse {
			known.used = now
		}
		next[image.ID] = known
	}
	r.all = next
}

// unused returns the images that may be removed, the one that was used longest ago
// first.
func (r *Records) unused() []*record {
	var all []*record
	for _, known := range r.all {
		if !known.inUse && !known.image.Pinned {
			all = append(all, known)
		}
	}
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(a.used.Compare(b.used), a.seen.Compare(b.seen), cmp.Compare(a.image.ID, b.image.ID))
	})
	return all
}

// Unused returns the images whose removal can free space, the first to remove first. Images
// that are younger than the minimum age are kept.
func (r *Records) Unused(now time.Time, minimumAge time.Duration) []Image {
	return images(slices.DeleteFunc(r.unused(), func(known *record) bool {
		// An image that was just in use may be needed by the next container of its pod.
		return now.Sub(known.seen) < minimumAge || !known.used.IsZero() && !known.used.Before(now)
	}))
}

// Older returns the images that no container has used for the maximum age. An image that
// was never used counts from when it was first seen.
func (r *Records) Older(now time.Time, maximumAge time.Duration) []Image {
	return images(slices.DeleteFunc(r.unused(), func(known *record) bool {
		last := r.began
		for _, at := range []time.Time{known.seen, known.used} {
			if at.After(last) {
				last = at
			}
		}
		return now.Sub(last) <= maximumAge
	}))
}

// Removed forgets an image that has been removed.
func (r *Records) Removed(id string) { delete(r.all, id) }

func images(records []*record) []Image {
	all := make([]Image, len(records))
	for i, known := range records {
		all[i] = known.image
	}
	return all
}

// Excess returns how many bytes have to be freed, given the bytes of the images' file
// system: nothing until the usage reaches the high threshold, and then as much as is
// needed to reach the low one. Thresholds are percentages; a high one of 100 turns this
// off.
func Excess(available, capacity int64, high, low int) int64 {
	if capacity <= 0 || high >= 100 {
		return 0
	}
	if used := 100 - int(available*100/capacity); used < high {
		return 0
	}
	return max(capacity*int64(100-low)/100-available, 0)
}
