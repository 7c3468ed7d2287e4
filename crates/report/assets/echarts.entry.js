// The parts of Apache ECharts that the report draws with; bundled into echarts.custom.min.js.
import * as core from 'echarts/core';
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  AriaComponent, AxisPointerComponent, DataZoomInsideComponent, DataZoomSliderComponent, GridComponent,
  LegendComponent, LegendScrollComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent,
} from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';
core.use([
  BarChart, CustomChart, LineChart, ScatterChart, AriaComponent, AxisPointerComponent, DataZoomInsideComponent,
  DataZoomSliderComponent, GridComponent, LegendComponent, LegendScrollComponent, MarkAreaComponent,
  MarkLineComponent, TooltipComponent, SVGRenderer,
]);
window.echarts = { init: core.init, connect: core.connect, disconnect: core.disconnect, version: core.version };
