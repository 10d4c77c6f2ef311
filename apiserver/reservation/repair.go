package reservation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis/resource"
)

// Report is what Repair found and did, in the order of the keys.
type Report struct {
	// Released are the keys that were reserved for an owner that does not hold them.
	Released []string
	// Reserved are the keys that an object holds and that were not reserved.
	Reserved []string
	// Conflicts are the keys that several objects hold. The user must delete all
	// but one of these objects and create them again.
	Conflicts []Conflict
}

// Conflict is a key that several objects hold.
type Conflict struct {
	Key     string
	Holders []resource.Owner
}

// Holders collects the owners of the keys that the objects of the kinds hold, by
// pool and key, for Repair. list reads all objects of a kind from etcd; it is
// called for the kinds that declare Reservations.
func Holders(ctx context.Context, kinds []*resource.Kind, list func(context.Context, *resource.Kind) ([]runtime.Object, error)) (map[string]map[string][]resource.Owner, error) {
	holders := map[string]map[string][]resource.Owner{}
	for _, kind := range kinds {
		if kind.Reservations == nil {
			continue
		}
		for pool := range kind.Reservations(kind.New()) {
			holders[pool] = map[string][]resource.Owner{}
		}
		objects, err := list(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("list %s to repair their reservations: %w", kind.Resource(), err)
		}
		for _, obj := range objects {
			owner, err := ownerOf(obj)
			if err != nil {
				return nil, err
			}
			for pool, keys := range kind.Reservations(obj) {
				for _, key := range keys {
					holders[pool][key] = append(holders[pool][key], owner)
				}
			}
		}
	}
	return holders, nil
}

func ownerOf(obj runtime.Object) (resource.Owner, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return resource.Owner{}, err
	}
	return resource.OwnerOf(m), nil
}

// Repair makes the reservations of a pool agree with the keys that objects hold;
// holders are the owners of these objects by key. The objects must have been
// read from etcd, not from a cache, before the call. again reads them a second time, after
// keys were reserved: an owner that was deleted before has released its key already.
//
// A reservation younger than grace is kept: a request may be about to write its
// object. So grace must be longer than the longest request and the reading of
// the objects together, and include the clock skew between servers.
func (s *Store) Repair(ctx context.Context, poolName string, holders map[string][]resource.Owner,
	again func(context.Context) (map[string][]resource.Owner, error), grace time.Duration,
) (Report, error) {
	p := s.Pool(poolName).(*pool)
	reservations, err := p.list(ctx)
	if err != nil {
		return Report{}, err
	}
	var report Report
	young := s.clock.Now().Add(-grace)
	for _, key := range slices.Sorted(maps.Keys(reservations)) {
		held := reservations[key]
		if held.Time.After(young) || slices.Contains(holders[key], held.Owner) {
			continue
		}
		released, err := p.delete(ctx, held)
		if err != nil {
			return report, err
		}
		if released {
			delete(reservations, key)
			report.Released = append(report.Released, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(holders)) {
		if len(holders[key]) > 1 {
			report.Conflicts = append(report.Conflicts, Conflict{Key: key, Holders: holders[key]})
		}
		if _, reserved := reservations[key]; reserved {
			continue
		}
		err := p.Reserve(ctx, key, holders[key][0])
		switch {
		case err == nil:
			report.Reserved = append(report.Reserved, key)
		case !apierrors.IsAlreadyExists(err):
			return report, err
		}
	}
	if len(report.Reserved) == 0 {
		return report, nil
	}
	report.Reserved, err = p.releaseUnheld(ctx, report.Reserved, holders, again)
	return report, err
}

// releaseUnheld releases those of the keys, which were reserved for the first of their holders,
// that these do not hold any more, and returns the others.
func (p *pool) releaseUnheld(ctx context.Context, keys []string, holders map[string][]resource.Owner,
	again func(context.Context) (map[string][]resource.Owner, error),
) (held []string, err error) {
	now, err := again(ctx)
	if err != nil {
		return keys, err
	}
	for i, key := range keys {
		owner := holders[key][0]
		if slices.Contains(now[key], owner) {
			held = append(held, key)
			continue
		}
		if err := p.Release(ctx, key, owner); err != nil {
			return append(held, keys[i:]...), err
		}
	}
	return held, nil
}
