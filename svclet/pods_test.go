package svclet

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/source"
)

func TestTheNodeIsWaitedForOnlyBeforeTheFirstPods(t *testing.T) {
	m := gomega.NewWithT(t)
	m.SetDefaultEventuallyTimeout(time.Minute)
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	p := &pods{ctx: t.Context(), clock: clock, nodeKnown: func() bool { return false }}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		p.awaitNode()
		p.awaitNode()
	}()
	began := clock.Now()
	m.Eventually(func() <-chan struct{} {
		if clock.HasWaiters() {
			clock.Step(nodeWait)
		}
		return waited
	}).Should(gomega.BeClosed())
	m.Expect(clock.Since(began)).To(gomega.BeNumerically("<", 2*nodeWait))
}

func TestPodsWithNothingToDoAreInGoodHealth(t *testing.T) {
	m := gomega.NewWithT(t)
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	p := &pods{ctx: t.Context(), clock: clock}
	updates := make(chan source.Update)
	go p.run(updates)
	clock.Step(time.Hour)
	m.Expect(p.Progress()).To(gomega.Equal(clock.Now()))
}

// slow are cgroups that take their time.
type slow struct {
	cgroups
	gate chan struct{}
}

func (s slow) UpdateClasses([]*corev1.Pod) error {
	<-s.gate
	return nil
}

func TestPodsThatDoNotComeToAnEndWithAnUpdateAreNotInGoodHealth(t *testing.T) {
	m := gomega.NewWithT(t)
	m.SetDefaultEventuallyTimeout(time.Minute)
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	hung := slow{gate: make(chan struct{})}
	p := &pods{ctx: t.Context(), clock: clock, operations: &operations{cgroups: hung}}
	updates := make(chan source.Update)
	go p.run(updates)
	began := clock.Now()
	updates <- source.Update{Source: source.File}
	m.Eventually(func() bool { return p.busy.Load() != nil }).Should(gomega.BeTrue())
	clock.Step(time.Hour)
	m.Expect(p.Progress()).To(gomega.Equal(began))
	close(hung.gate)
	m.Eventually(p.Progress).Should(gomega.Equal(clock.Now()))
}

// divided are cgroups that count how often classes are divided anew.
type divided struct {
	cgroups
	times *atomic.Int32
}

func (d divided) UpdateClasses([]*corev1.Pod) error {
	d.times.Add(1)
	return nil
}

func TestClassesAreDividedAnewEachMinuteWhereMemoryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var times atomic.Int32
		p := &pods{clock: clock.RealClock{}, operations: &operations{cgroups: divided{times: &times}}}
		ended := make(chan struct{})
		go func() { p.shareAgain(ctx); close(ended) }()
		time.Sleep(5*time.Minute + time.Second) // of the bubble's clock
		synctest.Wait()
		if got := times.Load(); got != 5 {
			t.Errorf("%d times in 5 minutes, want 5", got)
		}
		stop()
		<-ended
	})
}
