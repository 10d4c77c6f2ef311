package watchmux

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func TestASlowReaderReceivesAllEventsInOrderAndDelaysNoOther(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 2)
		var want []string
		for i := range maxPending {
			e := "M" + strconv.Itoa(10+i)
			want = append(want, e)
			shared.emit(e)
			expect(t, "the quick one", received(all[0]), e)
		}
		expect(t, "the slow one", received(all[1]), strings.Join(want, " "))
		shared.emit("D5000")
		expect(t, "the slow one when it has caught up", received(all[1]), "D5000")
	})
}

func TestASubscriptionEndsIfItsReaderIsTooFarBehind(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 2)
		for i := range 3 * maxPending {
			shared.emit("M" + strconv.Itoa(10+i))
			received(all[0])
		}
		events := strings.Fields(received(all[1]))
		if last := events[len(events)-1]; last != "end" || len(events) < resultBuffer {
			t.Errorf("it received %d events, the last %s", len(events), last)
		}
		for i, e := range events[:len(events)-1] {
			if e != fmt.Sprint("M", 10+i) {
				t.Fatalf("event %d is %s", i, e)
			}
		}
		shared.emit("D5000")
		expect(t, "the other", received(all[0]), "D5000")
	})
}

// large returns events of objects of a MiB each, from a version on.
func large(n, version int) []watch.Event {
	events := make([]watch.Event, n)
	for i := range events {
		events[i] = watch.Event{Type: watch.Modified, Object: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version + i)}, Data: map[string]string{"a": strings.Repeat("a", 1<<20)},
		}}
	}
	return events
}

// fit is how many large events have no more than maxPendingBytes.
const fit = maxPendingBytes>>20 - 1

func TestLargeEventsOfASlowReaderAreFewer(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 2)
		slow := all[1].(*subscription)
		for i, e := range large(3*resultBuffer+2*fit, 10) {
			shared.result <- e
			synctest.Wait()
			expect(t, "the quick one", received(all[0]), fmt.Sprint("M", 10+i))
			slow.group.mu.Lock()
			kept, ended := len(slow.pending), slow.ended
			slow.group.mu.Unlock()
			if ended && kept > 0 || kept > resultBuffer+fit {
				t.Fatalf("after %d events, %d are kept for the slow one; it has ended: %v", i+1, kept, ended)
			}
		}
		if events := strings.Fields(received(all[1])); events[len(events)-1] != "end" || len(events) < resultBuffer {
			t.Errorf("the slow one received %d events, and not the end", len(events))
		}
	})
}

func TestAReaderOfManyLargeEventsThatCatchesUpReceivesAll(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 1)
		for round := range 5 {
			var want []string
			for i, e := range large(2*resultBuffer+fit, 10+100*round) {
				want = append(want, fmt.Sprint("M", 10+100*round+i))
				shared.result <- e
				synctest.Wait()
			}
			expect(t, "received", received(all[0]), strings.Join(want, " "))
		}
	})
}

// sized is an object that reports when its size is found.
type sized struct {
	*corev1.ConfigMap
	asked func()
}

func (s *sized) DeepCopyObject() runtime.Object { return &sized{s.DeepCopy(), s.asked} }

func (s *sized) Size() int {
	s.asked()
	return s.ConfigMap.Size()
}

func TestTheSizeOfAnEventIsFoundOnceIfAReaderIsBehindAndOutsideTheLock(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 3)
		group := all[0].(*subscription).group
		var sizes atomic.Int32
		asked := func() {
			sizes.Add(1)
			if !group.mu.TryLock() {
				t.Error("other requests wait while the size is found")
				return
			}
			group.mu.Unlock()
		}
		version := 10
		emit := func(n int) {
			for range n {
				shared.result <- watch.Event{Type: watch.Modified, Object: &sized{
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}, asked,
				}}
				synctest.Wait()
				version++
			}
		}
		emit(2*resultBuffer + 1) // with the one that the goroutine of each reader sends
		if n := sizes.Load(); n > 0 {
			t.Errorf("%d sizes while none counts", n)
		}
		const more = 10
		emit(more)
		if n := sizes.Load(); n != more {
			t.Errorf("%d sizes of %d events while all readers are behind", n, more)
		}
		for _, w := range all {
			for len(w.ResultChan()) > 0 {
				<-w.ResultChan()
				synctest.Wait()
			}
		}
		emit(1) // shows that no reader is behind any more
		before := sizes.Load()
		emit(more)
		if n := sizes.Load(); n != before {
			t.Errorf("%d sizes after all readers have caught up", n-before)
		}
	})
}
