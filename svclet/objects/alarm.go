package objects

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// alarmCheck is the maximum time between checks for due tokens and certificates, because the
// clock may be changed and the machine may be suspended.
const alarmCheck = 10 * time.Minute

// alarm is the timer for the next renewal.
type alarm struct {
	timer clock.Timer
	at    time.Time
}

// arm sets the alarm unless it is set to an earlier time. The caller holds mutex.
func (s *Store) arm(at time.Time) {
	if s.alarm.timer != nil && !at.Before(s.alarm.at) {
		return
	}
	s.alarm.disarm()
	s.alarm.at = at
	s.alarm.timer = s.Clock.AfterFunc(min(at.Sub(s.Clock.Now()), alarmCheck), s.due)
}

func (a *alarm) disarm() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

// due is called by the timer.
func (s *Store) due() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.running.Go(s.renew)
	}
}

// renew reports the pods of which a token or a certificate is due.
func (s *Store) renew() {
	s.mutex.Lock()
	s.alarm.disarm()
	now := s.Clock.Now()
	due := map[types.UID]bool{}
	var next time.Time
	check := func(pod types.UID, at time.Time) {
		if !now.Before(at) {
			due[pod] = true
			// In case the caller does not request it.
			at = now.Add(tokenRetry)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for key, t := range s.tokens.byKey {
		check(key.pod, t.renew)
	}
	for key, c := range s.certificates.byKey {
		if at := c.Next(); !at.IsZero() {
			check(key.pod, at)
		}
	}
	if !next.IsZero() && !s.closed {
		s.arm(next)
	}
	s.mutex.Unlock()
	if len(due) > 0 {
		s.Changed(slices.Sorted(maps.Keys(due)))
	}
}
