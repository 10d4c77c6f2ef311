package binding

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

var allModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func randomVolume(random *rand.Rand, name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": pick(random, "a", "b")}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: pick(random, "", "fast", "slow"),
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(pick(random, "1Gi", "1024Mi", "2Gi", "5G", "1Ti"))},
			VolumeMode:       new(pick(random, corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)),
		},
		Status: corev1.PersistentVolumeStatus{Phase: pick(random, corev1.VolumeAvailable, corev1.VolumeAvailable, corev1.VolumeAvailable, corev1.VolumePending, corev1.VolumeReleased)},
	}
	for _, mode := range allModes {
		if random.IntN(2) == 0 {
			pv.Spec.AccessModes = append(pv.Spec.AccessModes, mode)
		}
	}
	if random.IntN(10) == 0 {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "other"}
	}
	if random.IntN(10) == 0 {
		pv.DeletionTimestamp = &metav1.Time{}
	}
	return pv
}

func randomClaim(random *rand.Rand) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(pick(random, "", "fast", "slow")),
			AccessModes:      []corev1.PersistentVolumeAccessMode{pick(random, allModes...)},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(pick(random, "500Mi", "1Gi", "1500Mi", "6G"))}},
			VolumeMode:       new(pick(random, corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)),
		},
	}
	if random.IntN(3) == 0 {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "a"}}
	}
	return claim
}

// best compares all volumes with a claim, as Kubernetes' controller does, and returns
// the names of those that it may choose.
func best(t *testing.T, claim *corev1.PersistentVolumeClaim, volumes map[string]*corev1.PersistentVolume) []string {
	for modes := range maxModes + 1 {
		var same []*corev1.PersistentVolume
		for _, pv := range volumes {
			if len(pv.Spec.AccessModes) == modes && volume.CheckAccessModes(claim, pv) {
				same = append(same, pv)
			}
		}
		found, err := volume.FindMatchingVolume(claim, same, nil, nil, false, true)
		if err != nil {
			t.Fatal(err)
		}
		if found == nil {
			continue
		}
		var names []string
		for _, pv := range same {
			equal, err := volume.FindMatchingVolume(claim, []*corev1.PersistentVolume{pv}, nil, nil, false, true)
			if err != nil {
				t.Fatal(err)
			}
			if equal != nil && equal.Spec.Capacity.Storage().Cmp(*found.Spec.Capacity.Storage()) == 0 {
				names = append(names, pv.Name)
			}
		}
		return names
	}
	return nil
}

func TestAClaimTakesTheVolumeThatAComparisonWithAllFinds(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var stock Stock
		volumes := map[string]*corev1.PersistentVolume{}
		for range 400 {
			name := fmt.Sprint("v", random.IntN(60))
			switch random.IntN(6) {
			case 0:
				stock.Remove(name)
				delete(volumes, name)
			case 1, 2, 3:
				volumes[name] = randomVolume(random, name)
				stock.Set(volumes[name])
			default:
				claim := randomClaim(random)
				want := best(t, claim, volumes)
				got := stock.Take(claim)
				if (got == nil) != (len(want) == 0) || got != nil && !slices.Contains(want, got.Name) {
					t.Fatalf("seed %d: took %v, want one of %v", seed, got, want)
				}
				if got != nil {
					delete(volumes, got.Name)
				}
			}
		}
		for name := range volumes {
			stock.Remove(name)
		}
		if len(stock.classes) != 0 || len(stock.places) != 0 {
			t.Fatalf("seed %d: the stock of removed volumes holds %v, %v", seed, stock.classes, stock.places)
		}
	}
}

func gibibyte(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
}

func TestNoTwoClaimsTakeTheSameVolume(t *testing.T) {
	const claims = 100
	var stock Stock
	for i := range claims {
		stock.Set(gibibyte(fmt.Sprint("v", i)))
	}
	var mu sync.Mutex
	taken := map[string]bool{}
	var wg sync.WaitGroup
	for range claims {
		wg.Go(func() {
			pv := stock.Take(&corev1.PersistentVolumeClaim{})
			mu.Lock()
			defer mu.Unlock()
			if pv == nil || taken[pv.Name] {
				t.Errorf("took %v", pv)
				return
			}
			taken[pv.Name] = true
		})
	}
	wg.Wait()
}

func TestAReturnedVolumeIsHeldInItsPresentState(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	bound := gibibyte("v")
	bound.Spec.ClaimRef = &corev1.ObjectReference{Name: "other"}
	failed := errors.New("no connection")
	for name, test := range map[string]struct {
		read *corev1.PersistentVolume
		err  error
		held bool
	}{
		"unchanged": {read: gibibyte("v"), held: true},
		"bound":     {read: bound},
		"deleted":   {},
		"unknown":   {err: failed},
	} {
		t.Run(name, func(t *testing.T) {
			var stock Stock
			stock.Set(gibibyte("v"))
			if stock.Take(claim) == nil || stock.Take(claim) != nil {
				t.Fatal("a volume is not taken once")
			}
			if err := stock.Return("v", func() (*corev1.PersistentVolume, error) { return test.read, test.err }); !errors.Is(err, test.err) {
				t.Errorf("got error %v", err)
			}
			if held := stock.Take(claim) != nil; held != test.held {
				t.Errorf("held: %v, want %v", held, test.held)
			}
		})
	}
}

func BenchmarkTakeOneOf5000(b *testing.B) {
	var stock Stock
	for i := range 5000 {
		stock.Set(gibibyte(fmt.Sprint("v", i)))
	}
	claim := &corev1.PersistentVolumeClaim{}
	for b.Loop() {
		stock.Set(stock.Take(claim))
	}
}
