package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/tlsrule"
)

// check returns what is wrong with single settings.
func (s *Settings) check() Problems {
	problems := s.checkGates()
	for i := range s.table {
		problems = append(problems, s.checkRule(&s.table[i])...)
	}
	return append(problems, s.checkLogging()...)
}

// contradictions returns settings that contradict each other.
func (s *Settings) contradictions() Problems {
	var problems Problems
	for _, contradiction := range []func() string{
		s.webhooksNeedAPIServer, s.certificateNeedsKey, s.pluginsNeedBoth, s.contentionNeedsLock,
		s.runOnceExcludesServer, s.runOnceExcludesAPIServer, s.runOnceNeedsPods, s.pullsInParallel,
		s.enforcementsNeedCgroups, s.noneExcludesOthers, s.compressibleExcludesAll, s.reservedCPUsExcludeCgroups, s.systemCgroupsNeedRoot,
		s.hiddenMetricsOfPreviousRelease,
		s.quotaPeriodNeedsGate, s.swapNeedsGate, s.qosReservedNeedsGate, s.podCIDRStandalone, s.connectionFileExists, s.thresholdsParse, s.imageThresholdsInOrder, s.imageAgesInOrder, s.bootstrapNeedsConnectionFile, s.servingRequestNeedsGate, s.suitesServeHTTP2, s.shutdownPeriods, s.cpuOptionsFit, s.topologyOptionsFit, s.memoryPolicyFits, s.logQueryFits, s.tracingFits, s.memoryQoSFits, s.allowlistFits,
	} {
		if problem := contradiction(); problem != "" {
			problems.add("%s", problem)
		}
	}
	return problems
}

// where returns the origin and the name of a setting for messages.
func (s *Settings) where(of *Setting) string {
	switch origin := s.origins[of.Field]; {
	case of.Flag != "" && s.given[of.Flag]:
		return of.title(true)
	case of.Field != "" && origin != "":
		return origin + ": " + of.title(false)
	}
	return of.title(of.Flag != "")
}

// at is where for a field, or for a flag without one ("--lock-file").
func (s *Settings) at(name string) string {
	if flag, ok := strings.CutPrefix(name, "--"); ok {
		return s.where(ofFlag(s.table, flag))
	}
	return s.where(ofField(s.table, name))
}

func (s *Settings) checkRule(of *Setting) Problems {
	var problems Problems
	if of.fallback != nil {
		return nil // they are checked when they are parsed
	}
	if problem := of.refuse(of.target(&s.Flags, s.Configuration)); problem != "" {
		problems.add("%s%s", s.where(of), problem)
	}
	return problems
}

// refuse returns why a setting's rule refuses a value, or "": the text after the
// setting's name in a message.
func (s *Setting) refuse(target reflect.Value) string {
	value := plain(target)
	if s.Rule == nil || value == nil {
		return ""
	}
	problem := s.Rule.refuse(value)
	if problem == "" {
		return ""
	}
	switch value.(type) {
	case int64, time.Duration, string:
		return " is " + quoted(value) + ": " + problem
	}
	return ": " + problem
}

func quoted(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(value)
}

// checkGates sets the feature gates and checks them.
func (s *Settings) checkGates() Problems {
	var problems Problems
	gates, err := featuregates.New()
	if err != nil {
		problems.add("feature gates: %v", err)
		return problems
	}
	names, known := featuregates.Names(), map[string]bool{}
	for name, on := range sorted(s.Configuration.FeatureGates) {
		own := featuregates.Own(name)
		if !slices.Contains(names, own) {
			problems.add("%s: %s", s.at("featureGates"), featuregates.Unknown(name, names))
			continue
		}
		known[own] = on
	}
	if err := gates.SetFromMap(known); err != nil {
		problems.add("%s: %v", s.at("featureGates"), err)
	}
	s.FeatureGates = gates
	s.Gates = NewGates(gates)
	return problems
}

func (s *Settings) checkLogging() Problems {
	var problems Problems
	c := &s.Configuration.Logging
	formats := []string{logsapi.DefaultLogFormat, logsapi.JSONLogFormat}
	if !slices.Contains(formats, c.Format) {
		problems.add("%s is %q: must be %s", s.at("logging.format"), c.Format, alternatives(formats))
		return problems
	}
	if c.Verbosity > math.MaxInt32 {
		problems.add("%s is %d: must be from 0 to %d", s.at("logging.verbosity"), c.Verbosity, math.MaxInt32)
		return problems
	}
	for _, err := range logsapi.Validate(c, s.FeatureGates, field.NewPath("logging")) {
		if err.Field == "logging.flushFrequency" {
			continue // its rule reports it
		}
		name := err.Field
		if ofField(s.table, name) != nil {
			name = s.at(name)
		}
		detail := err.Detail
		if detail == "" {
			detail = err.ErrorBody()
		}
		detail = strings.ToLower(detail[:1]) + detail[1:]
		if gate, of := strings.CutSuffix(strings.TrimPrefix(detail, "feature "), " is disabled"); of {
			detail += "; --feature-gates=" + gate + "=true enables it"
		}
		problems.add("%s: %s", name, detail)
	}
	return problems
}

func (s *Settings) webhooksNeedAPIServer() string {
	c := s.Configuration
	if s.Svcconfig != "" || !*c.EnableServer {
		return ""
	}
	if c.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeWebhook {
		return s.at("authorization.mode") + " is Webhook, which asks the API server: give --svcconfig, or set it to AlwaysAllow"
	}
	if *c.Authentication.Webhook.Enabled {
		return s.at("authentication.webhook.enabled") + " is true, which asks the API server: give --svcconfig, or set it to false"
	}
	return ""
}

func (s *Settings) certificateNeedsKey() string {
	c := s.Configuration
	switch {
	case c.TLSCertFile != "" && c.TLSPrivateKeyFile == "":
		return s.at("tlsCertFile") + " needs its key: set tlsPrivateKeyFile (--tls-private-key-file), too"
	case c.TLSCertFile == "" && c.TLSPrivateKeyFile != "":
		return s.at("tlsPrivateKeyFile") + " needs its certificate: set tlsCertFile (--tls-cert-file), too"
	}
	return ""
}

func (s *Settings) suitesServeHTTP2() string {
	c := s.Configuration
	if problem := tlsrule.RefuseSuites(c.TLSCipherSuites, c.TLSMinVersion); problem != "" && *c.EnableServer && cipherSuites().refuse(c.TLSCipherSuites) == "" {
		return s.at("tlsCipherSuites") + ": " + problem
	}
	return ""
}

func (s *Settings) pluginsNeedBoth() string {
	switch {
	case s.ImageCredentialProviderConfig != "" && s.ImageCredentialProviderBinDir == "":
		return "--image-credential-provider-config needs the programs: give --image-credential-provider-bin-dir, too"
	case s.ImageCredentialProviderConfig == "" && s.ImageCredentialProviderBinDir != "":
		return "--image-credential-provider-bin-dir needs to know the programs: give --image-credential-provider-config, too"
	}
	return ""
}

// allowlistFits is kubelet's: the list is of one policy only.
func (s *Settings) allowlistFits() string {
	c := s.Configuration
	if len(c.PreloadedImagesVerificationAllowlist) > 0 && c.ImagePullCredentialsVerificationPolicy != kubeletconfig.NeverVerifyAllowlistedImages {
		return s.at("preloadedImagesVerificationAllowlist") + " is of the policy NeverVerifyAllowlistedImages: set imagePullCredentialsVerificationPolicy to it, or remove the list"
	}
	return ""
}

func (s *Settings) contentionNeedsLock() string {
	if s.ExitOnLockContention && s.LockFile == "" {
		return "--exit-on-lock-contention needs a lock: give --lock-file, too"
	}
	return ""
}

// runOnceExcludesServer is section 7 rule 4.
func (s *Settings) runOnceExcludesServer() string {
	if c := s.Configuration; c.RunOnce && *c.EnableServer {
		return s.at("runOnce") + " excludes enableServer (--enable-server): set one of them to false"
	}
	return ""
}

func (s *Settings) runOnceExcludesAPIServer() string {
	if s.Configuration.RunOnce && s.Svcconfig != "" {
		return s.at("runOnce") + " excludes --svcconfig: it runs the pods of files and of a URL; leave one of them out"
	}
	return ""
}

func (s *Settings) runOnceNeedsPods() string {
	if c := s.Configuration; c.RunOnce && c.StaticPodPath == "" && c.StaticPodURL == "" {
		return s.at("runOnce") + " needs pods: set staticPodPath (--pod-manifest-path) or staticPodURL (--manifest-url), too"
	}
	return ""
}

func (s *Settings) pullsInParallel() string {
	c := s.Configuration
	if *c.SerializeImagePulls && c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls > 1 {
		return fmt.Sprintf("%s is %d: must be 1 as long as serializeImagePulls (--serialize-image-pulls) is true", s.at("maxParallelImagePulls"), *c.MaxParallelImagePulls)
	}
	return ""
}

// The values of enforceNodeAllocatable.
const (
	enforceNone   = "none"
	enforcePods   = "pods"
	enforceSystem = "system-reserved"
	enforceAgents = "kube-reserved"
	compressible  = "-compressible"
)

func enforcements() *Rule {
	known := []string{enforceNone, enforcePods, enforceSystem, enforceAgents, enforceSystem + compressible, enforceAgents + compressible}
	takes := "some of " + strings.Join(known, ", ")
	return &Rule{takes, func(value any) string {
		seen := map[string]bool{}
		for _, word := range value.([]string) {
			switch {
			case !slices.Contains(known, word):
				return fmt.Sprintf("%q must be one of %s", word, alternatives(known))
			case seen[word]:
				return fmt.Sprintf("%q is there twice", word)
			}
			seen[word] = true
		}
		return ""
	}}
}

// enforcementsNeedCgroups is section 7 rule 5, first half.
func (s *Settings) enforcementsNeedCgroups() string {
	c, at := s.Configuration, s.at("enforceNodeAllocatable")
	for _, word := range c.EnforceNodeAllocatable {
		switch {
		case word == enforceNone:
		case strings.TrimSuffix(word, compressible) == enforceSystem && c.SystemReservedCgroup == "":
			return at + " has " + word + ": set systemReservedCgroup (--system-reserved-cgroup), too"
		case strings.TrimSuffix(word, compressible) == enforceAgents && c.KubeReservedCgroup == "":
			return at + " has " + word + ": set kubeReservedCgroup (--svc-reserved-cgroup), too"
		case !*c.CgroupsPerQOS:
			return at + " has " + word + ": needs cgroupsPerQOS (--cgroups-per-qos); set it to true, or enforce none"
		}
	}
	return ""
}

// noneExcludesOthers is section 7 rule 5, second half.
func (s *Settings) noneExcludesOthers() string {
	if list := s.Configuration.EnforceNodeAllocatable; slices.Contains(list, enforceNone) && len(list) > 1 {
		return s.at("enforceNodeAllocatable") + " has none: must have nothing else"
	}
	return ""
}

func (s *Settings) compressibleExcludesAll() string {
	list := s.Configuration.EnforceNodeAllocatable
	for _, word := range []string{enforceSystem, enforceAgents} {
		if slices.Contains(list, word) && slices.Contains(list, word+compressible) {
			return fmt.Sprintf("%s has %s and %s: leave one of them out", s.at("enforceNodeAllocatable"), word, word+compressible)
		}
	}
	return ""
}

func (s *Settings) reservedCPUsExcludeCgroups() string {
	if c := s.Configuration; c.ReservedSystemCPUs != "" && (c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "") {
		return s.at("reservedSystemCPUs") + " excludes systemReservedCgroup (--system-reserved-cgroup) and kubeReservedCgroup (--svc-reserved-cgroup)"
	}
	return ""
}

// systemCgroupsNeedRoot is kubelet's rule: --system-cgroups requires
// --cgroup-root.
func (s *Settings) systemCgroupsNeedRoot() string {
	if c := s.Configuration; c.SystemCgroups != "" && c.CgroupRoot == "" {
		return s.at("systemCgroups") + " needs cgroupRoot (--cgroup-root): set it, too; / is the root of all"
	}
	return ""
}

// hiddenMetricsOfPreviousRelease is kubelet's rule: only the previous release may
// be shown, so that the setting fails when the next release hides more.
func (s *Settings) hiddenMetricsOfPreviousRelease() string {
	asked := s.Configuration.ShowHiddenMetricsForVersion
	if asked == "" {
		return ""
	}
	reported, err := version.ParseSemantic(s.Version)
	if err != nil {
		reported = version.MustParseSemantic(Release) // --version names none
	}
	previous := reported.SubtractMinor(1)
	if want := fmt.Sprintf("%d.%d", previous.Major(), previous.Minor()); asked != want {
		return fmt.Sprintf("%s is %q: must be %s, the minor release before the one that svclet reports, or left out", s.at("showHiddenMetricsForVersion"), asked, want)
	}
	return ""
}

func (s *Settings) quotaPeriodNeedsGate() string {
	period := s.Configuration.CPUCFSQuotaPeriod.Duration
	if period != defaultCFSQuotaPeriod && s.FeatureGates != nil && !s.FeatureGates.Enabled(gateCFSQuotaPeriod) {
		return fmt.Sprintf("%s is %s: must be %s unless the feature gate %s is on", s.at("cpuCFSQuotaPeriod"), period, defaultCFSQuotaPeriod, gateCFSQuotaPeriod)
	}
	return ""
}

func (s *Settings) swapNeedsGate() string {
	if s.Configuration.MemorySwap.SwapBehavior == LimitedSwap && s.FeatureGates != nil && !s.FeatureGates.Enabled(gateNodeSwap) {
		return s.at("memorySwap.swapBehavior") + " is " + LimitedSwap + ": needs the feature gate " + gateNodeSwap
	}
	return ""
}

// qosReservedNeedsGate is of document 3 section 8.
func (s *Settings) qosReservedNeedsGate() string {
	c := s.Configuration
	switch {
	case len(c.QOSReserved) == 0 || s.FeatureGates == nil:
	case !s.FeatureGates.Enabled(gateQOSReserved):
		return s.at("qosReserved") + " needs the feature gate " + gateQOSReserved
	case !*c.CgroupsPerQOS:
		return s.at("qosReserved") + " needs cgroupsPerQOS (--cgroups-per-qos): set it to true, or leave this out"
	}
	return ""
}

// LimitedSwap is the swapBehavior that lets containers swap.
const LimitedSwap = "LimitedSwap"

func (s *Settings) podCIDRStandalone() string {
	if s.given["pod-cidr"] && s.Svcconfig != "" && s.Configuration.PodCIDR != "" {
		return "--pod-cidr (podCIDR) is for an agent without --svcconfig: leave it out; the cluster gives the node its podCIDR"
	}
	return ""
}

func (s *Settings) connectionFileExists() string {
	if s.Svcconfig == "" || s.BootstrapSvcconfig != "" {
		return ""
	}
	if _, err := os.Stat(s.Svcconfig); errors.Is(err, os.ErrNotExist) {
		return "--svcconfig: there is no file " + s.Svcconfig
	}
	return ""
}

func (s *Settings) bootstrapNeedsConnectionFile() string {
	if s.BootstrapSvcconfig != "" && s.Svcconfig == "" {
		return "--bootstrap-svcconfig needs --svcconfig, the file that is written: give it, too"
	}
	return ""
}

func (s *Settings) servingRequestNeedsGate() string {
	switch {
	case !s.Configuration.ServerTLSBootstrap || s.FeatureGates == nil:
	case !s.FeatureGates.Enabled(gateRotateServing):
		return s.at("serverTLSBootstrap") + " needs the feature gate " + gateRotateServing
	case s.Svcconfig == "":
		return s.at("serverTLSBootstrap") + " is true, which asks the API server: give --svcconfig, or set it to false"
	}
	return ""
}

func absoluteRoot() *Rule {
	return &Rule{"", func(value any) string {
		if value.(string) == "" {
			return "must be a directory"
		}
		return ""
	}}
}

func oneWord() *Rule {
	return text("a domain, as cluster.local", func(s string) bool { return !strings.ContainsAny(s, " \t,/") })
}

// nodeLabels is the rule for labels that a node may set on itself (document 3
// section 9).
func nodeLabels() *Rule {
	return &Rule{"", func(value any) string {
		for key, text := range sorted(value.(map[string]string)) {
			if problems := validation.IsQualifiedName(key); len(problems) > 0 {
				return fmt.Sprintf("%q is not a valid label key: %s", key, brief(problems))
			}
			if problems := validation.IsValidLabelValue(text); len(problems) > 0 {
				return fmt.Sprintf("%q is not a valid label value: %s", text, brief(problems))
			}
			domain, _, _ := strings.Cut(key, "/")
			reserved := domain != key && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool {
				return domain == own || strings.HasSuffix(domain, "."+own)
			})
			if reserved && !kubeletapis.IsKubeletLabel(key) {
				return fmt.Sprintf("%q may not be set: in the domains kubernetes.io and k8s.io only %s may, and what is below %s", key,
					strings.Join(kubeletapis.KubeletLabels(), ", "), strings.Join(kubeletapis.KubeletLabelNamespaces(), " and "))
			}
		}
		return ""
	}}
}

// brief returns the reasons why a name is invalid, without the examples.
func brief(problems []string) string {
	problem, _, _ := strings.Cut(problems[0], " (e.g.")
	return problem
}

func taints() *Rule {
	effects := []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}
	return &Rule{"", func(value any) string {
		for _, taint := range value.([]corev1.Taint) {
			if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
				return fmt.Sprintf("%q is not a valid taint key: %s", taint.Key, brief(problems))
			}
			if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
				return fmt.Sprintf("%q is not a valid taint value: %s", taint.Value, brief(problems))
			}
			if !slices.Contains(effects, string(taint.Effect)) {
				return fmt.Sprintf("%q is not a supported taint effect: must be %s", taint.Effect, alternatives(effects))
			}
			if taint.TimeAdded != nil {
				return fmt.Sprintf("taint %s: leave timeAdded out", taint.Key)
			}
		}
		return ""
	}}
}
