"""Vision networks of torchvision and timm, at small images and, where the class allows, few blocks."""

# mypy: ignore-errors
# (the packages are untyped, and not installed where types are checked)

import torch

from zoo.model import Model, import_torchvision


def _tv(name, size=64, group="torchvision", **options):
    def make():
        return (
            import_torchvision().models.get_model(name, weights=None, **options),
            (torch.randn(2, 3, size, size),),
            {},
        )

    return Model(group, make)


def _tv_class(name, *arguments, size=64, **options):
    def make():
        module = getattr(import_torchvision().models, name)(*arguments, **options)
        return module, (torch.randn(2, 3, size, size),), {}

    return Model("torchvision", make)


def _video(name, frames=8, size=48, **options):
    def make():
        module = import_torchvision().models.get_model(name, weights=None, num_classes=11, **options)
        return module, (torch.randn(1, 3, frames, size, size),), {}

    return Model("torchvision, video", make)


def _segmentation(name):
    options = {"weights_backbone": None, "num_classes": 5}
    return _tv(name, 64, "torchvision, segmentation", **options)


def _fpn():
    """The backbone of torchvision's detectors: a ResNet with a feature pyramid."""
    import_torchvision()
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    return resnet_fpn_backbone(backbone_name="resnet18", weights=None), (torch.randn(2, 3, 64, 64),), {}


def _detection_head():
    """The features and heads of RetinaNet, before boxes are selected."""
    import_torchvision()
    from torchvision.models.detection import retinanet_resnet50_fpn

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            found = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4)
            self.backbone, self.head = found.backbone, found.head

        def forward(self, x):
            return self.head(list(self.backbone(x).values()))

    return Heads(), (torch.randn(1, 3, 64, 64),), {}


def _timm(name, size=64, **options):
    def make():
        import_torchvision()  # timm imports it
        import timm

        return (
            timm.create_model(name, pretrained=False, num_classes=11, **options),
            (torch.randn(2, 3, size, size),),
            {},
        )

    return Model("timm", make)


def _timm_class(path, *arguments, **options):
    """A class of timm with its own arguments, for functions that fix them."""

    def make():
        import_torchvision()
        from importlib import import_module

        module, name = path.split(".")
        made = getattr(import_module(f"timm.models.{module}"), name)(*arguments, num_classes=11, **options)
        return made, (torch.randn(2, 3, 64, 64),), {}

    return Model("timm", make)


def _mvit():
    import_torchvision()
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

    config = MultiScaleVitCfg(
        depths=(1, 1), embed_dim=24, stride_q=((1, 1), (2, 2)), stride_kv_adaptive=(2, 2)
    )
    return MultiScaleVit(config, img_size=64, num_classes=11), (torch.randn(2, 3, 64, 64),), {}


TORCHVISION = {
    "tv_resnet18": _tv("resnet18"),
    "tv_resnet50": _tv("resnet50"),
    "tv_resnext50_32x4d": _tv("resnext50_32x4d"),
    "tv_densenet": _tv_class("DenseNet", 8, (2, 3, 2, 2), 16),
    "tv_googlenet": _tv("googlenet", init_weights=False, aux_logits=False),
    "tv_inception_v3": _tv("inception_v3", 96, init_weights=False, aux_logits=False),
    "tv_squeezenet1_1": _tv("squeezenet1_1"),
    "tv_mobilenet_v2": _tv("mobilenet_v2", width_mult=0.5),
    "tv_mobilenet_v3_small": _tv("mobilenet_v3_small"),
    "tv_mnasnet0_5": _tv("mnasnet0_5"),
    "tv_shufflenet_v2_x0_5": _tv("shufflenet_v2_x0_5"),
    "tv_efficientnet_b0": _tv("efficientnet_b0"),
    "tv_regnet_y_400mf": _tv("regnet_y_400mf"),
    "tv_convnext_tiny": _tv("convnext_tiny"),
    "tv_vit": _tv_class("VisionTransformer", 64, 16, 2, 2, 64, 128),
    "tv_swin": _tv_class("SwinTransformer", [4, 4], 24, [2, 2], [2, 4], [4, 4]),
    "tv_maxvit": _tv_class(
        "MaxVit",
        (64, 64),
        stem_channels=16,
        partition_size=4,
        block_channels=[16, 32],
        block_layers=[1, 1],
        head_dim=8,
        stochastic_depth_prob=0.0,
    ),
    "tv_fcn_resnet50": _segmentation("fcn_resnet50"),
    "tv_deeplabv3_mobilenet_v3_large": _segmentation("deeplabv3_mobilenet_v3_large"),
    "tv_lraspp_mobilenet_v3_large": _segmentation("lraspp_mobilenet_v3_large"),
    "tv_resnet18_fpn": Model("torchvision, detection", _fpn),
    "tv_retinanet_heads": Model("torchvision, detection", _detection_head),
    "tv_r3d_18": _video("r3d_18"),
    "tv_r2plus1d_18": _video("r2plus1d_18"),
    "tv_s3d": _video("s3d", 16, 224),
}

TIMM = {
    "timm_resnet": _timm("test_resnet"),
    "timm_byobnet": _timm("test_byobnet"),
    "timm_convnext": _timm("test_convnext"),
    "timm_efficientnet": _timm("test_efficientnet"),
    "timm_efficientnet_evos": _timm("test_efficientnet_evos"),
    "timm_nfnet": _timm("test_nfnet"),
    "timm_mambaout": _timm("test_mambaout"),
    "timm_vit": _timm("test_vit", img_size=64),
    "timm_vit_registers": _timm("test_vit4", img_size=64),
    "timm_vit_relpos": _timm("vit_relpos_small_patch16_224", img_size=64, depth=2, embed_dim=64, num_heads=4),
    "timm_deit": _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=2, embed_dim=64, num_heads=4),
    "timm_beit": _timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=64, num_heads=4),
    "timm_eva02": _timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2, embed_dim=64, num_heads=4),
    "timm_cait": _timm("cait_xxs24_224", img_size=64, depth=2, embed_dim=64, num_heads=4),
    "timm_coat": _timm(
        "coat_lite_tiny", img_size=64, embed_dims=[16, 32, 40, 48], serial_depths=[1, 1, 1, 1]
    ),
    "timm_convit": _timm("convit_tiny", img_size=64, depth=4, embed_dim=64, num_heads=4, local_up_to_layer=2),
    "timm_convmixer": _timm_class("convmixer.ConvMixer", 48, 3, kernel_size=5, patch_size=8),
    "timm_davit": _timm("davit_tiny", depths=(1, 1), embed_dims=(16, 32), num_heads=(1, 2), window_size=4),
    "timm_dla": _timm("dla46_c"),
    "timm_edgenext": _timm("edgenext_xx_small"),
    "timm_efficientformer": _timm(
        "efficientformer_l1", 224, depths=(1, 1, 1, 2), embed_dims=(16, 24, 32, 48)
    ),
    "timm_efficientvit": _timm(
        "efficientvit_m0", 224, embed_dim=(24, 32, 48), depth=(1, 1, 1), num_heads=(2, 2, 3)
    ),
    "timm_efficientvit_mit": _timm("efficientvit_b0"),
    "timm_fastvit": _timm("fastvit_t8", layers=(1, 1, 1, 1)),
    "timm_focalnet": _timm_class("focalnet.FocalNet", depths=(1, 1, 1, 1), embed_dim=16),
    "timm_gcvit": _timm_class(
        "gcvit.GlobalContextVit",
        img_size=64,
        window_ratio=(32, 32, 32, 32),
        embed_dim=16,
        depths=(1, 1, 1, 2),
        num_heads=(1, 2, 2, 2),
    ),
    "timm_ghostnet": _timm("ghostnet_050"),
    "timm_hgnet": _timm("hgnetv2_b0"),
    "timm_hiera": _timm("hiera_tiny_224", img_size=(64, 64), stages=(1, 1, 1, 1), embed_dim=16, num_heads=1),
    "timm_hrnet": _timm("hrnet_w18_small"),
    "timm_inception_next": _timm("inception_next_atto", depths=(1, 1, 1, 1)),
    "timm_levit": _timm(
        "levit_128s", 224, embed_dim=(32, 48, 64), depth=(1, 1, 1), num_heads=(2, 3, 4), key_dim=8
    ),
    "timm_maxxvit": _timm(
        "coatnet_nano_rw_224", img_size=64, embed_dim=(32, 32, 64, 64), depths=(1, 1, 1, 1), stem_width=16
    ),
    "timm_metaformer": _timm_class("metaformer.MetaFormer", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48)),
    "timm_mixer": _timm_class("mlp_mixer.MlpMixer", img_size=64, num_blocks=2, embed_dim=64),
    "timm_mobilenetv4": _timm("mobilenetv4_conv_small_050"),
    "timm_mobilevit": _timm("mobilevit_xxs"),
    "timm_mvitv2": Model("timm", _mvit),
    "timm_nest": _timm_class(
        "nest.Nest", img_size=64, embed_dims=(16, 24, 32), num_heads=(2, 2, 2), depths=(1, 1, 1)
    ),
    "timm_pit": _timm("pit_ti_224", img_size=64, depth=(1, 1, 1)),
    "timm_pvt_v2": _timm("pvt_v2_b0", depths=(1, 1, 1, 1)),
    "timm_repvit": _timm("repvit_m0_9", depth=(1, 1, 1, 1), embed_dim=(16, 24, 32, 48)),
    "timm_res2net": _timm("res2net50_26w_4s", layers=(1, 1, 1, 1)),
    "timm_resnest": _timm("resnest14d", layers=(1, 1, 1, 1)),
    "timm_resnetv2": _timm("resnetv2_50", layers=(1, 1, 1, 1), channels=(32, 64, 96, 128), stem_chs=16),
    "timm_sequencer": _timm(
        "sequencer2d_s",
        64,
        img_size=64,
        layers=(1, 1, 1, 1),
        embed_dims=(16, 24, 24, 24),
        hidden_sizes=(4, 6, 6, 6),
    ),
    "timm_starnet": _timm("starnet_s050"),
    "timm_swiftformer": _timm("swiftformer_xs", layers=(1, 1, 1, 1)),
    "timm_swin": _timm(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=4,
        depths=(2, 2),
        num_heads=(2, 4),
        embed_dim=16,
    ),
    "timm_swinv2": _timm(
        "swinv2_tiny_window8_256", img_size=64, window_size=4, depths=(2, 2), num_heads=(2, 4), embed_dim=16
    ),
    "timm_swinv2_cr": _timm(
        "swinv2_cr_tiny_224", img_size=64, window_size=4, depths=(2, 2), num_heads=(2, 4), embed_dim=16
    ),
    "timm_tiny_vit": _timm(
        "tiny_vit_5m_224", 224, depths=(1, 1, 1, 1), embed_dims=(16, 24, 32, 40), num_heads=(1, 2, 2, 2)
    ),
    "timm_tnt": _timm("tnt_s_patch16_224", img_size=64, depth=2, embed_dim=60),
    "timm_twins": _timm("twins_svt_small", img_size=64, depths=[1, 1, 1, 2], embed_dims=[16, 32, 48, 64]),
    "timm_visformer": _timm("visformer_tiny", img_size=64, depth=(1, 1, 1), embed_dim=48),
    "timm_volo": _timm_class(
        "volo.VOLO",
        layers=(1, 1, 1, 1),
        img_size=64,
        embed_dims=(48, 64, 64, 64),
        num_heads=(2, 4, 4, 4),
        outlook_attention=(True, False, False, False),
        downsamples=(True, False, False, False),
        mlp_ratio=2,
    ),
    "timm_xcit": _timm("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=64, num_heads=4),
    "timm_skresnet": _timm("skresnet18"),
    "timm_senet": _timm("legacy_seresnet18"),
    "timm_vovnet": _timm("ese_vovnet19b_slim"),
    "timm_selecsls": _timm("selecsls42"),
    "timm_rexnet": _timm("rexnetr_100", width_mult=0.5),
    "timm_lambda_resnet": _timm("lambda_resnet26t", 128),
    "timm_sam_vit": _timm(
        "samvit_base_patch16_224",
        img_size=64,
        depth=2,
        embed_dim=64,
        num_heads=4,
        global_attn_indexes=(1,),
        window_size=3,
    ),
}

# The largest are last.
LARGE = {"tv_alexnet": _tv("alexnet", num_classes=11)}

MODELS = {**TORCHVISION, **TIMM, **LARGE}
