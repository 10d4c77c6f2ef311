package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
)

func flowSchemaFromV1beta2(in *flowcontrolv1beta2.FlowSchema, out *flowcontrolv1.FlowSchema) error {
	*out = flowcontrolv1.FlowSchema{
		ObjectMeta: in.ObjectMeta,
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference(in.Spec.PriorityLevelConfiguration),
			MatchingPrecedence:         in.Spec.MatchingPrecedence,
		},
		Status: flowcontrolv1.FlowSchemaStatus{Conditions: each(in.Status.Conditions, func(c flowcontrolv1beta2.FlowSchemaCondition) flowcontrolv1.FlowSchemaCondition {
			return flowcontrolv1.FlowSchemaCondition{
				Type:               flowcontrolv1.FlowSchemaConditionType(c.Type),
				Status:             flowcontrolv1.ConditionStatus(c.Status),
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			}
		})},
	}
	if m := in.Spec.DistinguisherMethod; m != nil {
		out.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodType(m.Type)}
	}
	out.Spec.Rules = each(in.Spec.Rules, func(r flowcontrolv1beta2.PolicyRulesWithSubjects) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{
			Subjects: each(r.Subjects, func(s flowcontrolv1beta2.Subject) flowcontrolv1.Subject {
				return flowcontrolv1.Subject{
					Kind:           flowcontrolv1.SubjectKind(s.Kind),
					User:           (*flowcontrolv1.UserSubject)(s.User),
					Group:          (*flowcontrolv1.GroupSubject)(s.Group),
					ServiceAccount: (*flowcontrolv1.ServiceAccountSubject)(s.ServiceAccount),
				}
			}),
			ResourceRules: each(r.ResourceRules, func(r flowcontrolv1beta2.ResourcePolicyRule) flowcontrolv1.ResourcePolicyRule {
				return flowcontrolv1.ResourcePolicyRule(r)
			}),
			NonResourceRules: each(r.NonResourceRules, func(r flowcontrolv1beta2.NonResourcePolicyRule) flowcontrolv1.NonResourcePolicyRule {
				return flowcontrolv1.NonResourcePolicyRule(r)
			}),
		}
	})
	return nil
}

func flowSchemaToV1beta2(in *flowcontrolv1.FlowSchema, out *flowcontrolv1beta2.FlowSchema) error {
	*out = flowcontrolv1beta2.FlowSchema{
		ObjectMeta: in.ObjectMeta,
		Spec: flowcontrolv1beta2.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1beta2.PriorityLevelConfigurationReference(in.Spec.PriorityLevelConfiguration),
			MatchingPrecedence:         in.Spec.MatchingPrecedence,
		},
		Status: flowcontrolv1beta2.FlowSchemaStatus{Conditions: each(in.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) flowcontrolv1beta2.FlowSchemaCondition {
			return flowcontrolv1beta2.FlowSchemaCondition{
				Type:               flowcontrolv1beta2.FlowSchemaConditionType(c.Type),
				Status:             flowcontrolv1beta2.ConditionStatus(c.Status),
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			}
		})},
	}
	if m := in.Spec.DistinguisherMethod; m != nil {
		out.Spec.DistinguisherMethod = &flowcontrolv1beta2.FlowDistinguisherMethod{Type: flowcontrolv1beta2.FlowDistinguisherMethodType(m.Type)}
	}
	out.Spec.Rules = each(in.Spec.Rules, func(r flowcontrolv1.PolicyRulesWithSubjects) flowcontrolv1beta2.PolicyRulesWithSubjects {
		return flowcontrolv1beta2.PolicyRulesWithSubjects{
			Subjects: each(r.Subjects, func(s flowcontrolv1.Subject) flowcontrolv1beta2.Subject {
				return flowcontrolv1beta2.Subject{
					Kind:           flowcontrolv1beta2.SubjectKind(s.Kind),
					User:           (*flowcontrolv1beta2.UserSubject)(s.User),
					Group:          (*flowcontrolv1beta2.GroupSubject)(s.Group),
					ServiceAccount: (*flowcontrolv1beta2.ServiceAccountSubject)(s.ServiceAccount),
				}
			}),
			ResourceRules: each(r.ResourceRules, func(r flowcontrolv1.ResourcePolicyRule) flowcontrolv1beta2.ResourcePolicyRule {
				return flowcontrolv1beta2.ResourcePolicyRule(r)
			}),
			NonResourceRules: each(r.NonResourceRules, func(r flowcontrolv1.NonResourcePolicyRule) flowcontrolv1beta2.NonResourcePolicyRule {
				return flowcontrolv1beta2.NonResourcePolicyRule(r)
			}),
		}
	})
	return nil
}

func priorityLevelFromV1beta2(in *flowcontrolv1beta2.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) error {
	*out = flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: in.ObjectMeta,
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablement(in.Spec.Type),
			Exempt: (*flowcontrolv1.ExemptPriorityLevelConfiguration)(in.Spec.Exempt),
		},
		Status: flowcontrolv1.PriorityLevelConfigurationStatus{Conditions: each(in.Status.Conditions,
			func(c flowcontrolv1beta2.PriorityLevelConfigurationCondition) flowcontrolv1.PriorityLevelConfigurationCondition {
				return flowcontrolv1.PriorityLevelConfigurationCondition{
					Type:               flowcontrolv1.PriorityLevelConfigurationConditionType(c.Type),
					Status:             flowcontrolv1.ConditionStatus(c.Status),
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				}
			})},
	}
	if l := in.Spec.Limited; l != nil {
		out.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: sharesFromBeta(l.AssuredConcurrencyShares, in.Annotations),
			LimitResponse: flowcontrolv1.LimitResponse{
				Type:    flowcontrolv1.LimitResponseType(l.LimitResponse.Type),
				Queuing: (*flowcontrolv1.QueuingConfiguration)(l.LimitResponse.Queuing),
			},
			LendablePercent:       l.LendablePercent,
			BorrowingLimitPercent: l.BorrowingLimitPercent,
		}
	}
	out.Annotations = withoutZeroMark(in.Annotations)
	return nil
}

func priorityLevelToV1beta2(in *flowcontrolv1.PriorityLevelConfiguration, out *flowcontrolv1beta2.PriorityLevelConfiguration) error {
	*out = flowcontrolv1beta2.PriorityLevelConfiguration{
		ObjectMeta: in.ObjectMeta,
		Spec: flowcontrolv1beta2.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1beta2.PriorityLevelEnablement(in.Spec.Type),
			Exempt: (*flowcontrolv1beta2.ExemptPriorityLevelConfiguration)(in.Spec.Exempt),
		},
		Status: flowcontrolv1beta2.PriorityLevelConfigurationStatus{Conditions: each(in.Status.Conditions,
			func(c flowcontrolv1.PriorityLevelConfigurationCondition) flowcontrolv1beta2.PriorityLevelConfigurationCondition {
				return flowcontrolv1beta2.PriorityLevelConfigurationCondition{
					Type:               flowcontrolv1beta2.PriorityLevelConfigurationConditionType(c.Type),
					Status:             flowcontrolv1beta2.ConditionStatus(c.Status),
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				}
			})},
	}
	if l := in.Spec.Limited; l != nil {
		out.Spec.Limited = &flowcontrolv1beta2.LimitedPriorityLevelConfiguration{
			AssuredConcurrencyShares: sharesToBeta(l.NominalConcurrencyShares),
			LimitResponse: flowcontrolv1beta2.LimitResponse{
				Type:    flowcontrolv1beta2.LimitResponseType(l.LimitResponse.Type),
				Queuing: (*flowcontrolv1beta2.QueuingConfiguration)(l.LimitResponse.Queuing),
			},
			LendablePercent:       l.LendablePercent,
			BorrowingLimitPercent: l.BorrowingLimitPercent,
		}
		if out.Spec.Limited.AssuredConcurrencyShares == 0 {
			out.Annotations = withZeroMark(in.Annotations)
		}
	}
	return nil
}
