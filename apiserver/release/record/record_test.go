package record

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

func at(minor int) release.Release { return release.Release{Major: 1, Minor: minor} }

func TestAReleaseServesWhatItCanRead(t *testing.T) {
	last := at(31)
	for _, tc := range []struct {
		name string
		last *release.Release
		r    release.Release
		want step
	}{
		{"new data", nil, at(16), advance},
		{"the same release", &last, at(31), serve},
		{"a newer one", &last, at(37), advance},
		{"one step back", &last, at(30), serve},
		{"two steps back", &last, at(29), examine},
		{"the oldest", &last, at(16), examine},
	} {
		if got := decide(tc.last, tc.r); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// memory is an etcd with one key.
type memory struct {
	clientv3.KV
	value    string
	revision int64
	// raced are records that another server writes before the next transactions.
	raced []string
}

func (m *memory) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp := &clientv3.GetResponse{}
	if m.value != "" {
		resp.Kvs = []*mvccpb.KeyValue{{Value: []byte(m.value), ModRevision: m.revision}}
	}
	return resp, nil
}

func (m *memory) Txn(context.Context) clientv3.Txn { return &txn{memory: m} }

type txn struct {
	clientv3.Txn
	memory *memory
	expect int64
	put    string
}

func (x *txn) If(compares ...clientv3.Cmp) clientv3.Txn {
	x.expect = compares[0].GetCompare().GetModRevision()
	return x
}

func (x *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.put = string(ops[0].ValueBytes())
	return x
}

func (x *txn) Commit() (*clientv3.TxnResponse, error) {
	m := x.memory
	if len(m.raced) > 0 {
		m.value, m.raced = m.raced[0], m.raced[1:]
		m.revision++
	}
	if m.revision != x.expect {
		return &clientv3.TxnResponse{}, nil
	}
	m.value = x.put
	m.revision++
	return &clientv3.TxnResponse{Succeeded: true}, nil
}

func recorded(r string) string {
	return `{"release":"` + r + `","svc":"0.9.0","storageVersions":{"pods":"v1","things.example.com":"example.com/v2"}}`
}

// Kinds by the releases that have them.
var (
	stable  = &resource.Kind{Name: "stable"}
	beta    = &resource.Kind{Name: "beta"}    // off by default
	newest  = &resource.Kind{Name: "newest"}  // of 1.37
	removed = &resource.Kind{Name: "removed"} // of releases to 1.34, with a gate
)

func flagsAt(r release.Release, k *resource.Kind) (flags []string, ok bool) {
	switch k {
	case beta:
		return []string{"--runtime-config=example.com/v1beta1=true"}, true
	case newest:
		return nil, r == at(37)
	case removed:
		return []string{"--feature-gates=A=true"}, r.Before(at(35))
	}
	return nil, true
}

func TestTheRecordFollowsTheReleaseThatLosesNothing(t *testing.T) {
	for _, tc := range []struct {
		name       string
		value      string
		r          release.Release
		losses     []Loss
		stored     bool // objects of things
		raced      []string
		want       string // release of the record afterwards
		refusal    string
		examinings int
	}{
		{name: "new data", r: at(28), want: "1.28"},
		{name: "newer", value: recorded("1.28"), r: at(31), want: "1.31"},
		{name: "one step back", value: recorded("1.31"), r: at(30), losses: []Loss{{Text: "a"}}, want: "1.31"},
		{name: "many steps back without a loss", value: recorded("1.37"), r: at(16), want: "1.16", examinings: 1},
		{
			name: "many steps back", value: recorded("1.37"), r: at(16), losses: []Loss{{"a (the kind)", stable}, {"b (spec.x)", stable}, {Text: "c (spec.y)"}, {Text: "d (spec.z)"}}, want: "1.37", examinings: 1,
			refusal: `--release: 1.16 cannot keep what release 1.37 has written: a (the kind), b (spec.x), c (spec.y) and 1 more; use --release=1.36 or newer, where "svc storage migrate --release=1.16" lists what to delete or change first`,
		},
		{
			name: "a kind that is off by default", value: recorded("1.37"), r: at(28), losses: []Loss{{"a (the kind)", stable}, {"b (the kind)", beta}, {"c (the kind)", beta}}, want: "1.37", examinings: 1,
			refusal: `; use --release=1.36 --runtime-config=example.com/v1beta1=true, where "svc storage`,
		},
		{name: "a kind of the last release", value: recorded("1.37"), r: at(28), losses: []Loss{{"a (the kind)", newest}}, want: "1.37", examinings: 1, refusal: `; use --release=1.37, where "svc storage`},
		{name: "a kind that is gone", value: recorded("1.37"), r: at(28), losses: []Loss{{"a (the kind)", removed}}, want: "1.37", examinings: 1, refusal: `; use --release=1.34 --feature-gates=A=true, where "svc storage`},
		{name: "kinds that no release has all", value: recorded("1.37"), r: at(28), losses: []Loss{{"a (the kind)", newest}, {"b (the kind)", removed}}, want: "1.37", examinings: 1, refusal: `; use --release=1.37, where "svc storage`},
		{name: "another server was faster", r: at(28), raced: []string{recorded("1.30")}, losses: []Loss{{Text: "a"}}, want: "1.30", examinings: 1, refusal: "1.28 cannot keep what release 1.30 has written: a;"},
		{name: "a release that comes later", value: recorded("1.99"), r: at(37), want: "1.99", refusal: "the data was written by release 1.99, which this svc"},
		{name: "a version that comes later", value: recorded("1.28"), r: at(28), stored: true, want: "1.28", refusal: "things.example.com are stored as example.com/v2, which this svc 0.1.0 cannot read: use svc 0.9.0, which wrote them, or newer"},
		{name: "no record", value: "[", r: at(28), want: "", refusal: "the record of the release at /registry/release in etcd is invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			etcd := &memory{value: tc.value, raced: tc.raced}
			if tc.value != "" {
				etcd.revision = 7
			}
			examinings := 0
			k := &Keeper{
				KV: etcd, Prefix: "/registry", Release: tc.r, SVC: "0.1.0", Storage: map[string]string{"pods": "v1"},
				Knows:  func(version string) bool { return version == "v1" },
				Stored: func(context.Context, string) (bool, error) { return tc.stored, nil },
				Losses: func(context.Context, release.Release) ([]Loss, error) { examinings++; return tc.losses, nil }, FlagsAt: flagsAt,
			}
			err := k.Check(t.Context())
			refusal := (*Refusal)(nil)
			if refused := errors.As(err, &refusal); refused != (tc.refusal != "") || refused && !strings.Contains(err.Error(), tc.refusal) || !refused && err != nil {
				t.Errorf("error %v, want %q", err, tc.refusal)
			}
			var record Record
			if tc.value != "[" {
				if err := json.Unmarshal([]byte(etcd.value), &record); err != nil {
					t.Fatal(err)
				}
			}
			if record.Release != tc.want || examinings != tc.examinings {
				t.Errorf("record %q after %d examinings, want %q after %d", record.Release, examinings, tc.want, tc.examinings)
			}
		})
	}
}

func TestTheRecordHasTheNewestVersionsThatAreStored(t *testing.T) {
	const older, newer = `{"pods":"v1","jobs.batch":"batch/v1beta1"}`, `{"pods":"v1","jobs.batch":"batch/v1"}`
	text := func(r, svc, storage string) string {
		return `{"release":"` + r + `","svc":"` + svc + `","storageVersions":` + storage + `}`
	}
	for _, tc := range []struct {
		name    string
		value   string
		svc     string
		r       release.Release
		storage string // of the server
		unknown string // a version
		raced   []string
		want    string
	}{
		{name: "of a newer svc at the same release", value: text("1.28", "A", older), svc: "B", r: at(28), storage: newer, want: text("1.28", "B", newer)},
		{name: "of a newer svc one step back", value: text("1.28", "A", older), svc: "B", r: at(27), storage: newer, want: text("1.28", "B", newer)},
		{name: "not of an older svc", value: text("1.28", "B", newer), svc: "A", r: at(28), storage: older, want: text("1.28", "B", newer)},
		{name: "not of an older svc at a newer release", value: text("1.28", "B", newer), svc: "A", r: at(29), storage: older, want: text("1.29", "B", newer)},
		{name: "also of kinds that the server does not have", value: text("1.28", "B", newer), svc: "A", r: at(28), storage: `{"pods":"v1"}`, want: text("1.28", "B", newer)},
		{name: "without versions that the server cannot read", value: text("1.28", "B", newer), svc: "A", r: at(28), storage: older, unknown: "batch/v1", want: text("1.28", "A", older)},
		{name: "of the last svc if the versions are the same", value: text("1.28", "A", older), svc: "B", r: at(28), storage: older, want: text("1.28", "B", older)},
		{name: "of both if another server was faster", value: text("1.28", "A", older), svc: "B", r: at(28), storage: newer, raced: []string{text("1.29", "A", older)}, want: text("1.29", "B", newer)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			etcd := &memory{value: tc.value, revision: 7, raced: tc.raced}
			k := &Keeper{
				KV: etcd, Prefix: "/registry", Release: tc.r, SVC: tc.svc,
				Knows:  func(version string) bool { return version != tc.unknown },
				Stored: func(context.Context, string) (bool, error) { return false, nil },
			}
			if err := json.Unmarshal([]byte(tc.storage), &k.Storage); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second check changes nothing
				if err := k.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var got, want Record
			if err := errors.Join(json.Unmarshal([]byte(etcd.value), &got), json.Unmarshal([]byte(tc.want), &want)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the record is %v, want %v", got, want)
			}
			if writes := etcd.revision - 7 - int64(len(tc.raced)); writes > 1 {
				t.Errorf("it is written %d times", writes)
			}
		})
	}
}

func TestAnObjectThatCannotBeReadRefusesTheReleaseInOneLine(t *testing.T) {
	etcd := &memory{value: recorded("1.37"), revision: 7}
	k := &Keeper{
		KV: etcd, Prefix: "/registry", Release: at(28), Knows: func(string) bool { return true },
	}
	k.Losses = func(_ context.Context, last release.Release) ([]Loss, error) {
		return nil, k.Unreadable(last, errors.New("secrets default/a cannot be read: the text\n  is no object"))
	}
	const want = "--release: whether 1.28 can keep what release 1.37 has written is unknown: secrets default/a cannot be read: the text is no object; " +
		"use --release=1.37, or correct the object in etcd or --encryption-provider-config first"
	err := k.Check(t.Context())
	if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
