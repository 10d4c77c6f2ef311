package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/apis/resource"
)

// newEtcd starts an etcd of one member on a unix socket.
func newEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	dir := t.TempDir()
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "data")
	config.LogLevel = "error"
	config.TickMs, config.ElectionMs = 5, 50
	config.UnsafeNoFsync = true
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "peer.sock")}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		t.Fatal(err)
	case <-t.Context().Done():
		t.Fatal("etcd did not become ready")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{client.String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

func owner(name string) resource.Owner {
	return resource.Owner{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

func TestOneOwnerHoldsAKeyAndOnlyThisOwnerReleasesIt(t *testing.T) {
	ctx := t.Context()
	store := New(newEtcd(t), "/registry", testingclock.NewFakePassiveClock(time.Now()))
	p, other := store.Pool("ips"), store.Pool("ports")
	a, b := owner("a"), owner("b")
	reborn := a
	reborn.UID = "another"

	for _, step := range []struct {
		rule   string
		do     func() error
		exists bool
		held   map[string]resource.Owner
	}{
		{"a free key can be reserved", func() error { return p.Reserve(ctx, "10.0.0.1", a) }, false, map[string]resource.Owner{"10.0.0.1": a}},
		{"another owner is refused", func() error { return p.Reserve(ctx, "10.0.0.1", b) }, true, map[string]resource.Owner{"10.0.0.1": a}},
		{"the same owner is refused", func() error { return p.Reserve(ctx, "10.0.0.1", a) }, true, map[string]resource.Owner{"10.0.0.1": a}},
		{"a longer key is another key", func() error { return p.Reserve(ctx, "10.0.0.10", b) }, false, map[string]resource.Owner{"10.0.0.1": a, "10.0.0.10": b}},
		{"another pool has keys of its own", func() error { return other.Reserve(ctx, "10.0.0.1", b) }, false, map[string]resource.Owner{"10.0.0.1": a, "10.0.0.10": b}},
		{"another owner releases nothing", func() error { return p.Release(ctx, "10.0.0.1", b) }, false, map[string]resource.Owner{"10.0.0.1": a, "10.0.0.10": b}},
		{"a later object of the same name releases nothing", func() error { return p.Release(ctx, "10.0.0.1", reborn) }, false, map[string]resource.Owner{"10.0.0.1": a, "10.0.0.10": b}},
		{"the owner releases", func() error { return p.Release(ctx, "10.0.0.1", a) }, false, map[string]resource.Owner{"10.0.0.10": b}},
		{"releasing a free key does nothing", func() error { return p.Release(ctx, "10.0.0.1", a) }, false, map[string]resource.Owner{"10.0.0.10": b}},
		{"a released key can be reserved", func() error { return p.Reserve(ctx, "10.0.0.1", b) }, false, map[string]resource.Owner{"10.0.0.1": b, "10.0.0.10": b}},
	} {
		err := step.do()
		if apierrors.IsAlreadyExists(err) != step.exists || (err != nil && !step.exists) {
			t.Fatalf("%s: got error %v", step.rule, err)
		}
		held, err := p.Held(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(held, step.held) {
			t.Fatalf("%s: held are %v, want %v", step.rule, held, step.held)
		}
	}
}

func TestTwoOwnersNeverHoldTheSameKey(t *testing.T) {
	const owners, keys, rounds = 64, 16, 4
	ctx := t.Context()
	store := New(newEtcd(t), "registry", testingclock.NewFakePassiveClock(time.Now()))
	var holding [keys]struct {
		sync.Mutex
		by string
	}
	reserveAll := func(me resource.Owner) error {
		p := store.Pool("small")
		for i := range keys * rounds {
			key := i % keys
			err := p.Reserve(ctx, fmt.Sprint(key), me)
			if apierrors.IsAlreadyExists(err) {
				continue
			} else if err != nil {
				return err
			}
			holding[key].Lock()
			if by := holding[key].by; by != "" {
				err = fmt.Errorf("%s got key %d, which %s holds", me.Name, key, by)
			}
			holding[key].by = me.Name
			holding[key].Unlock()
			if err != nil {
				return err
			}
			if i >= keys*(rounds-1) {
				continue // the keys of the last round stay reserved
			}
			holding[key].Lock()
			holding[key].by = ""
			holding[key].Unlock()
			if err := p.Release(ctx, fmt.Sprint(key), me); err != nil {
				return err
			}
		}
		return nil
	}
	var group sync.WaitGroup
	for i := range owners {
		group.Go(func() {
			if err := reserveAll(owner(fmt.Sprintf("owner-%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	held, err := store.Pool("small").Held(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(held) != keys {
		t.Errorf("%d keys are held in the end, want all %d", len(held), keys)
	}
	for key := range keys {
		if got := held[fmt.Sprint(key)].Name; got != holding[key].by {
			t.Errorf("key %d is reserved by %q, but Reserve succeeded for %q", key, got, holding[key].by)
		}
	}
}

// repairCase is a repair of reservations: those older than the grace period, those younger,
// and the owners that hold keys.
type repairCase struct {
	rule       string
	old, young map[string]resource.Owner
	holders    map[string][]resource.Owner
	// deleted are the owners that are deleted between the list of the holders and the repair.
	deleted  []resource.Owner
	want     Report
	wantHeld map[string]resource.Owner
}

func TestRepairMakesReservationsAgreeWithObjects(t *testing.T) {
	a, b, c := owner("a"), owner("b"), owner("c")
	client := newEtcd(t)
	for i, test := range []repairCase{{
		rule:     "a reservation with a holder stays",
		old:      map[string]resource.Owner{"1": a},
		young:    map[string]resource.Owner{"2": b},
		holders:  map[string][]resource.Owner{"1": {a}, "2": {b}},
		wantHeld: map[string]resource.Owner{"1": a, "2": b},
	}, {
		rule:     "a reservation without a holder is released",
		old:      map[string]resource.Owner{"1": a},
		want:     Report{Released: []string{"1"}},
		wantHeld: map[string]resource.Owner{},
	}, {
		rule:     "a reservation without a holder that is younger than the grace period stays",
		young:    map[string]resource.Owner{"1": a},
		wantHeld: map[string]resource.Owner{"1": a},
	}, {
		rule:     "a key that is held and not reserved is reserved",
		holders:  map[string][]resource.Owner{"1": {a}},
		want:     Report{Reserved: []string{"1"}},
		wantHeld: map[string]resource.Owner{"1": a},
	}, {
		rule:     "a key whose holder is deleted meanwhile is not reserved",
		holders:  map[string][]resource.Owner{"1": {a}, "2": {b}},
		deleted:  []resource.Owner{a},
		want:     Report{Reserved: []string{"2"}},
		wantHeld: map[string]resource.Owner{"2": b},
	}, {
		rule:     "the reservation of a deleted owner passes to the holder",
		old:      map[string]resource.Owner{"1": a},
		holders:  map[string][]resource.Owner{"1": {b}},
		want:     Report{Released: []string{"1"}, Reserved: []string{"1"}},
		wantHeld: map[string]resource.Owner{"1": b},
	}, {
		rule:     "of several holders the one with the reservation keeps it",
		old:      map[string]resource.Owner{"1": b},
		holders:  map[string][]resource.Owner{"1": {a, b}},
		want:     Report{Conflicts: []Conflict{{Key: "1", Holders: []resource.Owner{a, b}}}},
		wantHeld: map[string]resource.Owner{"1": b},
	}, {
		rule:     "of several holders without a reservation the first gets it",
		holders:  map[string][]resource.Owner{"1": {c, b}},
		want:     Report{Reserved: []string{"1"}, Conflicts: []Conflict{{Key: "1", Holders: []resource.Owner{c, b}}}},
		wantHeld: map[string]resource.Owner{"1": c},
	}} {
		t.Run(test.rule, func(t *testing.T) { test.run(t, client, fmt.Sprintf("/registry-%d", i)) })
	}
}

func (test repairCase) run(t *testing.T, client *clientv3.Client, prefix string) {
	const grace = time.Minute
	ctx := t.Context()
	clock := testingclock.NewFakePassiveClock(time.Now())
	store := New(client, prefix, clock)
	reserveAll := func(reservations map[string]resource.Owner) {
		for _, key := range slices.Sorted(maps.Keys(reservations)) {
			if err := store.Pool("p").Reserve(ctx, key, reservations[key]); err != nil {
				t.Fatal(err)
			}
		}
	}
	reserveAll(test.old)
	clock.SetTime(clock.Now().Add(2 * grace))
	reserveAll(test.young)
	clock.SetTime(clock.Now().Add(grace / 2))

	again := func(context.Context) (map[string][]resource.Owner, error) {
		left := map[string][]resource.Owner{}
		for key, owners := range test.holders {
			left[key] = slices.DeleteFunc(slices.Clone(owners), func(o resource.Owner) bool { return slices.Contains(test.deleted, o) })
		}
		return left, nil
	}
	got, err := store.Repair(ctx, "p", test.holders, again, grace)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, test.want) {
		t.Errorf("report is %+v, want %+v", got, test.want)
	}
	held, err := store.Pool("p").Held(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(held, test.wantHeld) {
		t.Errorf("reservations are %v, want %v", held, test.wantHeld)
	}
}
