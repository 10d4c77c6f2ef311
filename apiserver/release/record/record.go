// Package record owns the record, in etcd, of the release that has written the stored
// objects, and the decision whether another release may serve them.
package record

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

// Record is what is known of the servers that have written the stored objects.
type Record struct {
	// Release is the newest one since the data was last found to fit an older one.
	Release string `json:"release"`
	// SVC is a version of svc that reads all that is stored.
	SVC string `json:"svc"`
	// Storage has the group and version that each resource is stored in, by
	// resource.group.
	Storage map[string]string `json:"storageVersions"`
}

// Keeper keeps the record of a server.
type Keeper struct {
	// KV is the etcd cluster, Prefix that of all keys.
	KV     clientv3.KV
	Prefix string
	// Release is what the server serves, and SVC its own version.
	Release release.Release
	SVC     string
	// Storage is what the server stores, as in Record.
	Storage map[string]string
	// Knows reports whether the server can read a group and version, and Stored
	// whether there are objects of a resource (resource.group).
	Knows  func(groupVersion string) bool
	Stored func(ctx context.Context, resource string) (bool, error)
	// Losses returns what the release would lose of the stored objects that releases up to
	// last have written.
	Losses func(ctx context.Context, last release.Release) ([]Loss, error)
	// FlagsAt is that of [release.Served].
	FlagsAt func(r release.Release, k *resource.Kind) (flags []string, ok bool)
}

// Loss is what the release would lose of an object.
type Loss struct {
	// Text names the object and what is lost.
	Text string
	// Kind is the declaration of the object, or nil for one that every release serves.
	Kind *resource.Kind
}

// Refusal is the error of a release that must not serve the stored objects.
type Refusal struct{ message string }

// Error implements error. It is one line, and says what to do.
func (r *Refusal) Error() string { return r.message }

// step is what a release has to do before it serves objects that another one has written.
type step int

const (
	// serve: the objects stay as they are, and so does the release of the record.
	serve step = iota
	// advance: the record becomes that of the release.
	advance
	// examine: the release may serve them, and becomes the record's, if it would lose
	// nothing.
	examine
)

// decide returns what release r has to do about objects that release last has written,
// which is nil without a record. The next release keeps all that the last one wrote, and
// the one before the last, too: a group's storage version advances only when that one
// can read it (document 2, section 9, rule 4b).
func decide(last *release.Release, r release.Release) step {
	switch {
	case last == nil || last.Before(r):
		return advance
	case *last == r || last.Minor == r.Minor+1:
		return serve
	}
	return examine
}

// Check decides whether the server's release may serve the stored objects, and makes it
// that of the record, or returns a Refusal. After other errors, such as those of etcd, the
// caller tries again. The error is rpctypes.ErrNoSpace if the release may serve them, but a
// full etcd refuses the record.
//
// The release of the record does not follow one step back, so that a second one is examined.
func (k *Keeper) Check(ctx context.Context) error {
	for {
		record, revision, err := k.read(ctx)
		if err != nil {
			return err
		}
		if err := k.readable(ctx, record); err != nil {
			return err
		}
		last, err := lastOf(record)
		if err != nil {
			return err
		}
		next := k.next(record)
		switch decide(last, k.Release) {
		case serve:
			next.Release = record.Release
			if reflect.DeepEqual(next, *record) {
				return nil
			}
		case examine:
			losses, err := k.Losses(ctx, *last)
			if err != nil {
				return err
			}
			if len(losses) > 0 {
				return &Refusal{k.refusal(*last, losses)}
			}
		case advance:
		}
		if written, err := k.write(ctx, next, revision); err != nil || written {
			return err
		}
	}
}

// next returns the record of the server after another one, or after nil. Of a resource that
// another svc stores in a newer version, objects of this version stay. Those in versions that
// the server cannot read do not exist (readable).
func (k *Keeper) next(record *Record) Record {
	next := Record{Release: k.Release.String(), SVC: k.SVC, Storage: map[string]string{}}
	maps.Copy(next.Storage, k.Storage)
	if record == nil {
		return next
	}
	for resource, groupVersion := range record.Storage {
		if k.Knows(groupVersion) && newer(groupVersion, k.Storage[resource]) {
			next.SVC, next.Storage[resource] = record.SVC, groupVersion
		}
	}
	return next
}

// newer reports whether the version of a is newer than that of b, or b is empty.
func newer(a, b string) bool {
	version := func(groupVersion string) string { return groupVersion[strings.LastIndex(groupVersion, "/")+1:] }
	return b == "" || kubeversion.CompareKubeAwareVersionStrings(version(a), version(b)) > 0
}

func lastOf(record *Record) (*release.Release, error) {
	if record == nil {
		return nil, nil
	}
	last, err := release.Parse(record.Release)
	if err != nil {
		return nil, &Refusal{fmt.Sprintf("the data was written by release %s, which this svc %s does not have: use svc %s or newer", record.Release, release.SVCVersion(), record.SVC)}
	}
	return &last, nil
}

// refusal is the message for a release that would lose something of what last has written.
func (k *Keeper) refusal(last release.Release, losses []Loss) string {
	const shown = 3
	more := ""
	if n := len(losses) - shown; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	var texts []string
	for _, loss := range losses[:min(shown, len(losses))] {
		texts = append(texts, loss.Text)
	}
	return fmt.Sprintf(`--release: %v cannot keep what release %v has written: %s%s; use %s, where "svc storage migrate --release=%v" lists what to delete or change first`,
		k.Release, last, strings.Join(texts, ", "), more, k.reader(last, losses), k.Release)
}

// Unreadable returns the refusal for an error of an object that last, or a release before,
// has written: what the release would lose of it cannot be determined.
func (k *Keeper) Unreadable(last release.Release, err error) *Refusal {
	return &Refusal{fmt.Sprintf("--release: whether %v can keep what release %v has written is unknown: %s; use --release=%v, or correct the object in etcd or --encryption-provider-config first",
		k.Release, last, strings.Join(strings.Fields(err.Error()), " "), last)}
}

// reader returns the flags of a server that serves the objects that would be lost: of the
// release before the last, or, for a kind that this does not have, of the last or of the
// newest one that has it. If no release has all kinds, it serves the first; the next refusal
// is about the others.
func (k *Keeper) reader(last release.Release, losses []Loss) string {
	back := release.Release{Major: last.Major, Minor: last.Minor - 1}
	candidates := []release.Release{back, last}
	for minor := back.Minor - 1; minor > k.Release.Minor; minor-- {
		candidates = append(candidates, release.Release{Major: last.Major, Minor: minor})
	}
	var kinds []*resource.Kind
	for _, loss := range losses {
		if loss.Kind != nil && !slices.Contains(kinds, loss.Kind) {
			kinds = append(kinds, loss.Kind)
		}
	}
	for _, wanted := range [][]*resource.Kind{kinds, kinds[:min(1, len(kinds))]} {
		for _, r := range candidates {
			if flags, ok := k.flagsFor(r, wanted); ok {
				text := fmt.Sprintf("--release=%v", r)
				if r == back && len(flags) == 0 {
					return text + " or newer"
				}
				return strings.Join(append([]string{text}, flags...), " ")
			}
		}
	}
	return fmt.Sprintf("--release=%v", last)
}

// flagsFor returns the flags by which a server of release r serves all the kinds; ok is false
// if the release does not have one of them.
func (k *Keeper) flagsFor(r release.Release, kinds []*resource.Kind) (flags []string, ok bool) {
	for _, kind := range kinds {
		needed, has := k.FlagsAt(r, kind)
		if !has {
			return nil, false
		}
		for _, flag := range needed {
			if !slices.Contains(flags, flag) {
				flags = append(flags, flag)
			}
		}
	}
	return flags, true
}

// readable returns a Refusal if there are objects in a version that this svc cannot read.
func (k *Keeper) readable(ctx context.Context, record *Record) error {
	if record == nil {
		return nil
	}
	for resource, version := range record.Storage {
		if k.Knows(version) {
			continue
		}
		stored, err := k.Stored(ctx, resource)
		if err != nil {
			return err
		}
		if stored {
			return &Refusal{fmt.Sprintf("%s are stored as %s, which this svc %s cannot read: use svc %s, which wrote them, or newer", resource, version, k.SVC, record.SVC)}
		}
	}
	return nil
}

func (k *Keeper) key() string { return "/" + strings.Trim(k.Prefix, "/") + "/release" }

// read returns the record, or nil if there is none, and its revision.
func (k *Keeper) read(ctx context.Context) (*Record, int64, error) {
	resp, err := k.KV.Get(ctx, k.key())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	var record Record
	if err := json.Unmarshal(resp.Kvs[0].Value, &record); err != nil {
		return nil, 0, &Refusal{fmt.Sprintf("the record of the release at %s in etcd is invalid: %v: delete the key if the data is that of --release=%v or older", k.key(), err, k.Release)}
	}
	return &record, resp.Kvs[0].ModRevision, nil
}

// write replaces the record of a revision. It returns false if another server has
// written meanwhile.
func (k *Keeper) write(ctx context.Context, record Record, revision int64) (bool, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return false, err
	}
	resp, err := k.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(k.key()), "=", revision)).
		Then(clientv3.OpPut(k.key(), string(value))).
		Commit()
	if err != nil {
		return false, fmt.Errorf("write the record of the release: %w", err)
	}
	return resp.Succeeded, nil
}
