// Package horizontalpodautoscaler owns the controller of autoscalers: it sets the number
// of replicas of their targets by the metrics of these. Package decide makes the
// decisions; the scripts in its testdata show them.
package horizontalpodautoscaler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5, period: 15 * time.Second, settings: decide.Settings{
		Tolerance: 0.1, CPUInitialization: 5 * time.Minute, InitialReadiness: 30 * time.Second, Downscale: 5 * time.Minute,
	}}
	read := []string{"get", "list"}
	return controller.Controller{
		Name:         "horizontalpodautoscaler",
		Aliases:      []string{"horizontalpodautoscaling", "horizontal-pod-autoscaler-controller"},
		ReleaseGates: []string{zeroGate, generationGate},
		Reads:        []client.Object{&autoscalingv2.HorizontalPodAutoscaler{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("autoscaling", []string{"horizontalpodautoscalers/status"}, []string{"update"}),
			controller.Can("*", []string{"*/scale"}, []string{"get", "update"}),
			controller.Can("metrics.k8s.io", []string{"pods"}, []string{"list"}),
			controller.Can("custom.metrics.k8s.io", []string{"*"}, read),
			controller.Can("external.metrics.k8s.io", []string{"*"}, read),
		},
		Flags:    o.addFlags,
		Validate: o.validate,
		Setup:    o.setup,
	}
}

// generationGate is the feature gate of the generation of autoscalers that the status has.
const generationGate = "HPAGeneration"

const (
	concurrentFlag = "concurrent-horizontal-pod-autoscaler-syncs"
	periodFlag     = "horizontal-pod-autoscaler-sync-period"
	toleranceFlag  = "horizontal-pod-autoscaler-tolerance"
	downscaleFlag  = "horizontal-pod-autoscaler-downscale-stabilization"
	startFlag      = "horizontal-pod-autoscaler-cpu-initialization-period"
	readinessFlag  = "horizontal-pod-autoscaler-initial-readiness-delay"
)

type options struct {
	concurrent int
	period     time.Duration
	settings   decide.Settings
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	s := &o.settings
	fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many autoscalers are synced at the same time.")
	fs.DurationVar(&o.period, periodFlag, o.period, "The time between two syncs of an autoscaler.")
	fs.Float64Var(&s.Tolerance, toleranceFlag, s.Tolerance, "How far the ratio of a metric and its target may be from 1 without a change.")
	fs.DurationVar(&s.Downscale, downscaleFlag, s.Downscale, "How long an autoscaler without a behavior uses the highest recommendation before it scales down.")
	fs.DurationVar(&s.CPUInitialization, startFlag, s.CPUInitialization, "How long after its start the processor usage of a pod counts only while it is ready.")
	fs.DurationVar(&s.InitialReadiness, readinessFlag, s.InitialReadiness, "How long after its start a pod that becomes unready counts as one that was never ready.")
}

func (o *options) validate() []error {
	errs := controller.AtLeastOne(concurrentFlag, o.concurrent)
	if o.period <= 0 {
		errs = append(errs, fmt.Errorf("--%s: %s must be positive", periodFlag, o.period))
	}
	if o.settings.Tolerance < 0 || math.IsNaN(o.settings.Tolerance) {
		errs = append(errs, fmt.Errorf("--%s: %g must be 0 or more", toleranceFlag, o.settings.Tolerance))
	}
	return slices.Concat(errs, controller.NotNegative(downscaleFlag, o.settings.Downscale),
		controller.NotNegative(startFlag, o.settings.CPUInitialization), controller.NotNegative(readinessFlag, o.settings.InitialReadiness))
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	m, err := newMetrics(env, o.period/3)
	if err != nil {
		return err
	}
	marks, err := marksZero(ctx, env)
	if err != nil {
		return err
	}
	observes, err := env.On(ctx, generationGate)
	if err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, scales: scales{env.Live}, metrics: m, recorder: env.Recorder("horizontal-pod-autoscaler"),
		period: o.period, settings: o.settings, now: env.Clock.Now, targets: newTargets(), marksZero: marks, observes: observes,
	}
	return controller.Run(env, controller.Options{Name: "horizontalpodautoscaler", Workers: o.concurrent}, r,
		controller.For(&autoscalingv2.HorizontalPodAutoscaler{}, changed))
}
