// Package csrsigning signs approved CertificateSigningRequests for Kubernetes' own
// signers, each with a certificate authority of its own or all with the same.
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests#kubernetes-signers
package csrsigning

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
)

const (
	name    = "csrsigning"
	workers = 2

	// CertFlag and KeyFlag name the files of the authority of all signers.
	CertFlag     = "cluster-signing-cert-file"
	KeyFlag      = "cluster-signing-key-file"
	durationFlag = "cluster-signing-duration"
)

// New declares the controller.
func New() controller.Controller {
	o := newOptions()
	sign := controller.Can(certificatesv1.GroupName, []string{"signers"}, []string{"sign"})
	for _, own := range o.own {
		sign.ResourceNames = append(sign.ResourceNames, own.signer)
	}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{"certificatesigningrequest-signing-controller"},
		Standalone: true,
		Reads:      []client.Object{&certificatesv1.CertificateSigningRequest{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can(certificatesv1.GroupName, []string{"certificatesigningrequests/status"}, []string{"update"}), sign,
		},
		Flags:    o.addFlags,
		Validate: o.validate,
		Setup:    o.setup,
	}
}

// legacySigner is the signer of requests of the version v1beta1, which is not served.
const legacySigner = "kubernetes.io/legacy-unknown"

// options are the controller's flags.
type options struct {
	all      files
	own      []files
	duration time.Duration
}

func newOptions() *options {
	o := &options{duration: 365 * 24 * time.Hour}
	for _, s := range []struct{ signer, flag string }{
		{certificatesv1.KubeAPIServerClientSignerName, "kube-apiserver-client"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, "kubelet-client"},
		{certificatesv1.KubeletServingSignerName, "kubelet-serving"},
		{legacySigner, "legacy-unknown"},
	} {
		o.own = append(o.own, files{signer: s.signer, flag: "cluster-signing-" + s.flag})
	}
	return o
}

// files are those of a signer's authority, in PEM.
type files struct{ signer, flag, cert, key string }

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.all.cert, CertFlag, o.all.cert, "PEM file of the authority that signs approved requests for the signers that have no flag of their own. Empty: these are not signed.")
	fs.StringVar(&o.all.key, KeyFlag, o.all.key, "PEM file of the private key of --"+CertFlag+".")
	fs.DurationVar(&o.duration, durationFlag, o.duration, "How long certificates are valid at most; a request may ask for less, but not for less than 10 minutes.")
	for i := range o.own {
		own := &o.own[i]
		fs.StringVar(&own.cert, own.flag+"-cert-file", own.cert, "PEM file of the authority of the signer "+own.signer+". The default is --"+CertFlag+".")
		fs.StringVar(&own.key, own.flag+"-key-file", own.key, "PEM file of the private key of --"+own.flag+"-cert-file.")
	}
}

func (o *options) validate() []error {
	var errs []error
	if o.duration < minLifetime {
		errs = append(errs, fmt.Errorf("--%s: %s must be at least %s", durationFlag, o.duration, minLifetime))
	}
	if (o.all.cert == "") != (o.all.key == "") {
		errs = append(errs, fmt.Errorf("--%s and --%s: set both or none", CertFlag, KeyFlag))
	}
	for _, own := range o.own {
		if (own.cert == "") != (own.key == "") {
			errs = append(errs, fmt.Errorf("--%[1]s-cert-file and --%[1]s-key-file: set both or none", own.flag))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	for _, f := range append([]files{{flag: CertFlag[:len(CertFlag)-len("-cert-file")], cert: o.all.cert, key: o.all.key}}, o.own...) {
		if f.cert == "" {
			continue
		}
		if _, err := readAuthority(f.cert, f.key); err != nil {
			errs = append(errs, fmt.Errorf("--%[1]s-cert-file, --%[1]s-key-file: %[2]w; name PEM files of an authority and its private key", f.flag, err))
		}
	}
	return errs
}

// picked returns the files of the signers that have an authority.
func (o *options) picked() map[string]files {
	picked := map[string]files{}
	for _, f := range o.own {
		if f.cert == "" {
			f.cert, f.key = o.all.cert, o.all.key
		}
		if f.cert != "" {
			picked[f.signer] = f
		}
	}
	return picked
}

// setup adds the controller if there is an authority.
func (o *options) setup(ctx context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, now: env.Clock.Now, longest: o.duration, signers: o.picked()}
	if len(r.signers) == 0 {
		klog.FromContext(ctx).V(2).Info("Controller is not started, it has no certificate authority", "controller", name, "flag", "--"+CertFlag)
		return nil
	}
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, r,
		controller.For(&certificatesv1.CertificateSigningRequest{}))
}
