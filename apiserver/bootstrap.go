package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/bootstrap"
	"svc.dev/svc/apiserver/reservation"
)

const (
	// servicePort is where pods find the kubernetes Service.
	servicePort = 443
	// repairInterval is how often reservations are compared with the objects.
	repairInterval = 3 * time.Minute
)

// addBootstrap makes what a cluster cannot be without part of the server's
// start. Each step runs once before the server is ready and is kept true after.
func (b *builder) addBootstrap(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer) error {
	_, port, err := config.SecureServing.HostPort()
	if err != nil {
		return err
	}
	advertise, _ := netip.AddrFromSlice(config.PublicAddress)
	auth := bootstrap.Authentication{ClientCA: b.identity.ClientCA}
	if h := b.options.Authentication.RequestHeader; b.identity.RequestHeader != nil {
		auth.RequestHeaderCA = b.identity.RequestHeader.CAContentProvider
		auth.UsernameHeaders, auth.UIDHeaders, auth.GroupHeaders = h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders
		auth.ExtraHeaderPrefixes, auth.AllowedNames = h.ExtraHeaderPrefixes, h.AllowedNames
	}
	steps := bootstrap.Steps(bootstrap.Config{
		Client: b.client,
		Clock:  clock.RealClock{},
		Service: bootstrap.Service{
			ClusterIP: bootstrap.FirstAddress(b.env.ServiceCIDRs[0]), Port: servicePort, TargetPort: int32(port),
		},
		Advertise:      netip.AddrPortFrom(advertise.Unmap(), uint16(port)),
		Shared:         b.options.SharedStorage,
		Authentication: auth,
	})
	steps = append(steps, bootstrap.Step{Name: "repair-claims", Interval: repairInterval, Ensure: b.repairReservations})
	if b.roles != nil {
		steps = append(steps, bootstrap.RolesStep(b.client.RbacV1()))
	}
	for _, step := range steps {
		if err := server.AddPostStartHook(step.Name, func(hook genericapiserver.PostStartHookContext) error {
			// First fails only when the server ends before it succeeds.
			if step.First(hook, clock.RealClock{}) == nil && step.Interval > 0 {
				go step.Keep(hook, clock.RealClock{})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// repairReservations makes the reservations agree with the objects that hold
// them, which a crash may have left different.
func (b *builder) repairReservations(ctx context.Context) error {
	holders, err := reservation.Holders(ctx, b.kinds, func(ctx context.Context, kind *resource.Kind) ([]runtime.Object, error) {
		return b.env.Objects(kind.Resource()).List(ctx, "", labels.Everything())
	})
	if err != nil {
		return err
	}
	for pool, held := range holders {
		report, err := b.reservations.Repair(ctx, pool, held, 2*b.options.Requests.Timeout+time.Minute)
		if err != nil {
			return fmt.Errorf("repair reservations of %s: %w", pool, err)
		}
		logger := klog.FromContext(ctx).WithValues("pool", pool)
		if len(report.Released) > 0 || len(report.Reserved) > 0 {
			logger.Info("Repaired reservations", "released", report.Released, "reserved", report.Reserved)
		}
		for _, conflict := range report.Conflicts {
			logger.Error(nil, "Several objects hold the same reservation, delete and create all but one again", "key", conflict.Key, "holders", conflict.Holders)
		}
	}
	return nil
}
