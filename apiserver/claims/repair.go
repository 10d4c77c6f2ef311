package claims

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
	// Freed are the keys that were claimed by an owner who does not hold them.
	Freed []string
	// Claimed are the keys that were held and not claimed.
	Claimed []string
	// Conflicts are the keys that several objects hold. All but one of these
	// must be made anew by hand.
	Conflicts []Conflict
}

// Conflict is a key that several objects hold.
type Conflict struct {
	Key     string
	Holders []resource.Owner
}

// Holders collects what the objects of the kinds hold, by pool and key, for
// Repair. list reads all objects of a kind from etcd; it is called for the
// kinds that claim anything.
func Holders(ctx context.Context, kinds []*resource.Kind, list func(context.Context, *resource.Kind) ([]runtime.Object, error)) (map[string]map[string][]resource.Owner, error) {
	holders := map[string]map[string][]resource.Owner{}
	for _, kind := range kinds {
		if kind.Claims == nil {
			continue
		}
		for pool := range kind.Claims(kind.New()) {
			holders[pool] = map[string][]resource.Owner{}
		}
		objects, err := list(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("list %s to repair their claims: %w", kind.Resource(), err)
		}
		for _, obj := range objects {
			owner, err := ownerOf(obj)
			if err != nil {
				return nil, err
			}
			for pool, keys := range kind.Claims(obj) {
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

// Repair makes the claims of a pool agree with what objects hold, which holders
// says by key. The objects must have been read from etcd, not from a cache,
// before the call.
//
// A claim younger than grace is left alone: a request may be about to write
// its object. So grace must be longer than the longest request and the reading
// of the objects together, and cover the servers' difference in time.
func (s *Store) Repair(ctx context.Context, poolName string, holders map[string][]resource.Owner, grace time.Duration) (Report, error) {
	p := s.Pool(poolName).(*pool)
	claims, err := p.list(ctx)
	if err != nil {
		return Report{}, err
	}
	var report Report
	young := s.clock.Now().Add(-grace)
	for _, key := range slices.Sorted(maps.Keys(claims)) {
		held := claims[key]
		if held.Time.After(young) || slices.Contains(holders[key], held.Owner) {
			continue
		}
		freed, err := p.free(ctx, held)
		if err != nil {
			return report, err
		}
		if freed {
			delete(claims, key)
			report.Freed = append(report.Freed, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(holders)) {
		if len(holders[key]) > 1 {
			report.Conflicts = append(report.Conflicts, Conflict{Key: key, Holders: holders[key]})
		}
		if _, claimed := claims[key]; claimed {
			continue
		}
		err := p.Claim(ctx, key, holders[key][0])
		switch {
		case err == nil:
			report.Claimed = append(report.Claimed, key)
		case !apierrors.IsAlreadyExists(err):
			return report, err
		}
	}
	return report, nil
}
