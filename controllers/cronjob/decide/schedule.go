package decide

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// tooManyMissed is how many start times may have passed since the last one before
// the user is warned: the controller did not run, or the clock has jumped.
const tooManyMissed = 100

// schedule is when a cron job's jobs start. Times are in the cron job's time zone.
type schedule struct {
	cron.Schedule
	zone *time.Location
}

// period is a schedule with a constant delay: a start time is that delay, or a multiple of it,
// after from.
type period struct {
	delay time.Duration
	from  time.Time
}

// Next returns the first start time after t.
func (p period) Next(t time.Time) time.Time {
	return p.from.Add(max(t.Sub(p.from)/p.delay+1, 1) * p.delay)
}

// from returns the schedule of a cron job whose last start, or creation, was at t. A constant
// delay counts from there.
func (s schedule) from(t time.Time) schedule {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		s.Schedule = period{every.Delay, t.In(s.zone)}
	}
	return s
}

// after returns the first start time after t. It is zero if there is none within five
// years.
func (s schedule) after(t time.Time) time.Time { return s.Next(t.In(s.zone)) }

// has reports whether t is a start time. Any time is one of a constant delay, which
// depends on where it began.
func (s schedule) has(t time.Time) bool {
	_, delay := s.Schedule.(cron.ConstantDelaySchedule)
	return delay || s.after(t.Add(-time.Second)).Equal(t)
}

// latest returns the last start time after since that is not after now, or zero. many
// reports whether more than tooManyMissed have passed.
func (s schedule) latest(since, now time.Time) (at time.Time, many bool) {
	first := s.after(since)
	if first.IsZero() || first.After(now) {
		return time.Time{}, false
	}
	if every, ok := s.Schedule.(period); ok { // its times may be a second apart
		missed := now.Sub(first) / every.delay
		return first.Add(missed * every.delay), missed >= tooManyMissed
	}
	for t, count := first, 1; !t.IsZero() && !t.After(now); t, count = s.after(t), count+1 {
		if at = t; count > tooManyMissed {
			return s.lastBefore(first, now), true
		}
	}
	return at, false
}

// lastBefore returns the last start time from first to now. It looks backwards over a
// period that doubles, so that a minute's schedule after years costs little.
func (s schedule) lastBefore(first, now time.Time) time.Time {
	at := first
	for period := time.Minute; period > 0 && now.Sub(first) > period; period *= 2 {
		if t := s.after(now.Add(-period)); !t.IsZero() && !t.After(now) {
			at = t
			break
		}
	}
	for t := s.after(at); !t.IsZero() && !t.After(now); t = s.after(t) {
		at = t
	}
	return at
}

// parse returns the schedule of a cron job; zone is its time zone, or nil for that of
// the process.
func parse(text string, zone *string) (schedule, *invalid) {
	s := schedule{zone: time.Local}
	var err error
	if zone != nil {
		if s.zone, err = time.LoadLocation(*zone); err != nil {
			return s, &invalid{"UnknownTimeZone", fmt.Sprintf("invalid timeZone: %q: %s", *zone, err)}
		}
	}
	if s.Schedule, err = cron.ParseStandard(text); err != nil {
		return s, &invalid{"UnparseableSchedule", fmt.Sprintf("unparseable schedule: %q : %s", text, err)}
	}
	return s, nil
}

// invalid is why no job can ever start until the user changes the cron job: the reason
// and message of an event.
type invalid struct{ reason, message string }
