package podworker

import "time"

// The causes of syncs, which are kubelet's types of syncs of pods.
const (
	causeCreate = "create"
	causeUpdate = "update"
	causeSync   = "sync"
	causeKill   = "kill"
)

// noteCause records the cause of the sync that an input begins. In a sync that the runtime, a
// probe or the clock has caused, an input of the pod's source becomes the cause. The caller
// holds mu.
func (w *Worker) noteCause(cause string) {
	if w.syncCause == "" || w.syncCause == causeSync {
		w.syncCause = cause
	}
}

// measureSync begins a sync with the first inputs that the machine gets, and measures it when
// there are no more and no operation is in flight. The caller holds mu.
func (w *Worker) measureSync(now time.Time) {
	switch {
	case w.syncCause == "" || w.ctx.Err() != nil:
	case w.syncBegan.IsZero():
		w.syncBegan = now
	case !w.running && len(w.operations) == 0:
		w.o.Metrics.PodSynced(w.syncCause, now.Sub(w.syncBegan))
		w.syncCause, w.syncBegan = "", time.Time{}
	}
}
