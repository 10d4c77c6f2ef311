package decision

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestProfilesSelectAndWeighPlugins(t *testing.T) {
	testProfiles(t, []profileCase{
		{"a disabled filter rejects no node", func(p *Profile) { p.Disabled = sets.New("TaintToleration") }, `
node a taint=dedicated=db:NoSchedule
fits web`, "a"},
		{"a score without a weight does not count", func(p *Profile) { delete(p.Weights, "NodeResourcesFit") }, `
node a
node b
pod busy on=b cpu=2 memory=4Gi
decide web`, "a or b"},
		{"weights multiply scores", func(p *Profile) { p.Weights = map[string]int64{"NodeResourcesFit": 7} }, `
node a cpu=4 memory=4Gi
score all web cpu=2 memory=2Gi`, "a=350"},
		{"no preemption", func(p *Profile) { p.NoPreemption = true }, `
node a cpu=1
pod low on=a cpu=1
preempt high cpu=1 priority=1`, ""},
	})
}

func TestProfilesScoreResources(t *testing.T) {
	cpuAndGPU := []WeightedResource{{corev1.ResourceCPU, 1}, {"example.com/gpu", 3}}
	testProfiles(t, []profileCase{
		{"most allocated nodes first", func(p *Profile) { p.Strategy = &Strategy{Type: MostAllocated, Resources: cpuAndGPU} }, `
node a cpu=4 example.com/gpu=4
pod busy on=a cpu=1 example.com/gpu=3
score NodeResourcesFit web cpu=1 example.com/gpu=1`, "a=87"},
		{"an extended resource that the pod does not request is left out", func(p *Profile) { p.Strategy = &Strategy{Type: MostAllocated, Resources: cpuAndGPU} }, `
node a cpu=4 example.com/gpu=4
pod busy on=a cpu=1 example.com/gpu=3
score NodeResourcesFit web cpu=1`, "a=50"},
		{"least allocated nodes first, with weights", func(p *Profile) { p.Strategy = &Strategy{Type: LeastAllocated, Resources: cpuAndGPU} }, `
node a cpu=4 example.com/gpu=4
pod busy on=a cpu=1 example.com/gpu=3
score NodeResourcesFit web cpu=1 example.com/gpu=1`, "a=12"},
		{"a shape of utilization", func(p *Profile) {
			p.Strategy = &Strategy{Type: RequestedToCapacityRatio, Resources: cpuAndGPU, Shape: []ShapePoint{{20, 0}, {60, 100}, {100, 50}}}
		}, `
node a cpu=10 example.com/gpu=10
node b cpu=10 example.com/gpu=10
pod busy on=b cpu=7 example.com/gpu=5
score NodeResourcesFit web cpu=1 example.com/gpu=4`, "a=50 b=66"},
		{"three resources are balanced", func(p *Profile) {
			p.Balanced = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/gpu"}
		}, `
node a cpu=4 memory=4Gi example.com/gpu=4
node b cpu=4 memory=4Gi example.com/gpu=4
pod busy on=a cpu=1 memory=1Gi
score NodeResourcesBalancedAllocation web example.com/gpu=1`, "a=81 b=69"},
		{"devices that a class offers as an extended resource count", func(p *Profile) {
			p.ExtendedResources, p.Strategy = true, &Strategy{Type: MostAllocated, Resources: cpuAndGPU}
		}, `
node a cpu=4
node b cpu=4 zone=z1
deviceclass gpu model=large offers=example.com/gpu
devices a gpu-0=large gpu-1=large gpu-2=large gpu-3=large other=small
devices in:z1 far-0=large far-1=large
resourceclaim one class=gpu device=a/gpu-0
resourceclaim two class=gpu device=in:z1/far-0
score NodeResourcesFit web cpu=1 example.com/gpu=1`, "a=43 b=81"},
		{"devices that a class offers as an extended resource are balanced", func(p *Profile) {
			p.ExtendedResources, p.Balanced = true, []corev1.ResourceName{corev1.ResourceCPU, "example.com/gpu"}
		}, `
node a cpu=4
node b cpu=4
deviceclass gpu offers=example.com/gpu
devices a gpu-0=large gpu-1=large
devices b gpu-0=large gpu-1=large
resourceclaim one class=gpu device=a/gpu-0
score NodeResourcesBalancedAllocation web cpu=2 example.com/gpu=1`, "a=75 b=75"},
		{"ignored resources and groups need not be there", func(p *Profile) {
			p.IgnoredResources, p.IgnoredGroups = sets.New("example.com/license"), sets.New("example.org")
		}, `
node a
fits web example.com/license=1 example.org/x=1`, "a"},
	})
}

func TestProfilesScoreVolumes(t *testing.T) {
	const cluster = `
class local waits
class fast waits provisioner=d1
volume whole class=local size=4Gi on=a
volume half class=local size=8Gi on=b
volume quarter class=fast size=16Gi on=b
node a
node b
node c
claim data class=local size=4Gi
claim logs class=fast size=4Gi
`
	fullFirst := func(p *Profile) { p.VolumeShape = DefaultVolumeShape() }
	testProfiles(t, []profileCase{
		{"by default not at all", func(*Profile) {}, cluster + "score VolumeBinding db claim=data", "no preference"},
		{"the smallest volume that is large enough", fullFirst, cluster + "score VolumeBinding db claim=data", "a=100 b=50"},
		{"the mean of the classes, without volumes to provision", fullFirst, cluster + "score VolumeBinding db claim=data claim=logs", "a=100 b=38"},
		{"no existing volume", fullFirst, cluster + "score VolumeBinding db claim=logs select={kubernetes.io/hostname=a}", "no preference"},
		{"another shape", func(p *Profile) { p.VolumeShape = []ShapePoint{{0, 100}, {50, 0}, {100, 0}} }, cluster + "score VolumeBinding db claim=logs", "a=0 b=50 c=0"},
	})
}

func TestProfilesScoreTheCapacityForNewVolumes(t *testing.T) {
	const cluster = `
class pool waits provisioner=d1
class cold waits provisioner=d2
class unlimited waits provisioner=d3
class local waits
driver d1
driver d2
volume whole class=local size=4Gi on=a
volume half class=local size=8Gi on=b
node a
node b
capacity pool-a class=pool size=10Gi on=a
capacity pool-b class=pool size=20Gi on=b
capacity cold-a class=cold size=10Gi on=a
capacity cold-b class=cold size=10Gi on=b
claim five class=pool size=5Gi
claim four class=pool size=4Gi
claim ice class=cold size=5Gi
claim any class=unlimited size=5Gi
claim data class=local size=4Gi
`
	emptyFirst := func(p *Profile) { p.VolumeShape, p.ScoreCapacity = DefaultCapacityShape(), true }
	testProfiles(t, []profileCase{
		{"not with the shape alone", func(p *Profile) { p.VolumeShape = DefaultCapacityShape() }, cluster + "score VolumeBinding db claim=five", "no preference"},
		{"the node with the most capacity", emptyFirst, cluster + "score VolumeBinding db claim=five", "a=50 b=75"},
		{"the largest of several reports", emptyFirst, cluster + "capacity more-a class=pool size=40Gi on=a\nscore VolumeBinding db claim=five", "a=88 b=75"},
		{"the sum of the claims of a class", emptyFirst, cluster + "score VolumeBinding db claim=five claim=four", "a=10 b=55"},
		{"the mean of the classes", emptyFirst, cluster + "score VolumeBinding db claim=five claim=four claim=ice", "a=30 b=53"},
		{"existing volumes only, if there are some", emptyFirst, cluster + "score VolumeBinding db claim=data claim=five", "a=0 b=50"},
		{"no capacity that no driver reports", emptyFirst, cluster + "score VolumeBinding db claim=any", "no preference"},
	})
}

func TestProfilesSetAffinityAndSpread(t *testing.T) {
	testProfiles(t, []profileCase{
		{"the weight of required affinity", func(p *Profile) { p.RequiredWeight = 0 }, `
node a
node b
pod client on=a near={app=web}/host
score InterPodAffinity web {app=web}`, "no preference"},
		{"affinity of other pods is ignored", func(p *Profile) { p.IgnorePreferred = true }, `
node a
node b
pod client on=a near~10={app=web}/host
pod cache on=a near={app=web}/host
score InterPodAffinity web {app=web}`, "no preference"},
		{"affinity of other pods is not ignored for a pod with a preferred one", func(p *Profile) { p.IgnorePreferred = true }, `
node a
node b
pod client on=a near~10={app=web}/host
score InterPodAffinity web {app=web} away~1={app=none}/host`, "a=100 b=0"},
		{"a required constraint by default", func(p *Profile) {
			p.ListDefaulting = true
			p.DefaultConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, `
node a zone=z1
node b zone=z2
service web {app=web}
pod web-1 on=a {app=web}
fits web-2 {app=web}`, "b"},
		{"no constraints by default", func(p *Profile) { p.ListDefaulting = true }, `
node a zone=z1
node b zone=z2
service web {app=web}
pod web-1 on=a {app=web}
score PodTopologySpread web-2 {app=web}`, "no preference"},
		{"an added affinity", func(p *Profile) {
			p.AddedAffinity = &corev1.NodeAffinity{}
			addNodeAffinity(p.AddedAffinity, map[string]string{"pool": "x"}, "", false)
		}, `
node a
node b {pool=x}
fits web`, "b"},
		{"an added affinity that no node has", func(p *Profile) {
			p.AddedAffinity = &corev1.NodeAffinity{}
			addNodeAffinity(p.AddedAffinity, map[string]string{"pool": "x"}, "", false)
		}, `
node a
fits web`, "0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity."},
		{"an added preference", func(p *Profile) {
			p.AddedAffinity = &corev1.NodeAffinity{}
			addNodeAffinity(p.AddedAffinity, map[string]string{"pool": "x"}, "10", true)
		}, `
node a
node b {pool=x}
decide web`, "b"},
	})
}

type profileCase struct {
	name   string
	change func(*Profile)
	script string // the last line is asked, with its answer
	want   string
}

func testProfiles(t *testing.T, cases []profileCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			s := NewSnapshot()
			p := DefaultProfile("")
			test.change(p)
			s.SetProfiles(p)
			var got string
			for _, line := range strings.Split(strings.TrimSpace(test.script), "\n") {
				command, rest, _ := strings.Cut(line, " ")
				got = s.run(command, rest)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAPodIsDecidedOnByTheProfileOfItsScheduler(t *testing.T) {
	s := NewSnapshot()
	lax := DefaultProfile("lax")
	lax.Disabled = sets.New("TaintToleration")
	s.SetProfiles(DefaultProfile("strict"), lax)
	s.SetNode(parseNode("a taint=dedicated=db:NoSchedule"))
	for scheduler, want := range map[string]string{"strict": "", "lax": "a", "other": ""} {
		pod := parsePod("web")
		pod.Spec.SchedulerName = scheduler
		if d := s.Decide(pod, nil); d.Node != want {
			t.Errorf("%s: got %q", scheduler, d.Node)
		}
	}
}
